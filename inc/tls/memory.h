// The memory OpenSSL allocates per record, kept for the next record.
//
// OpenSSL 3.0 builds each record it writes with a WPACKET, whose three bookkeeping nodes of 40 bytes come
// from the heap (WPACKET_init_*, WPACKET_start_sub_packet). Relaying must not allocate per byte moved, so
// blocks of that size go to a short free list instead of back to the heap. Everything else passes through.
#pragma once

namespace tlsproxy::tls {

// Routes OpenSSL's allocations through the free list. To be called before anything else uses OpenSSL, which
// refuses afterwards (CRYPTO_set_mem_functions(3)); false then. The process must use OpenSSL from one
// thread.
bool keep_record_nodes();

}  // namespace tlsproxy::tls
