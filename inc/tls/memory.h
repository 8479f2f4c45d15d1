// The memory that OpenSSL takes and frees with every message, kept for the next one.
//
//   what                                    bytes    taken and freed
//   three nodes of a WPACKET                40       with each record that is written
//   a record buffer, for input or output    16 KiB   with each message of a session that rests in between
//   the buffer of handshake messages        21 KiB   with each handshake
//
// A session at rest holds none of them (tls::Transport::cool), and relaying must not cost a walk through
// the heap per message: so blocks of these sizes go to short free lists, which all sessions of the process
// share. Everything else passes through.
#pragma once

#include <cstddef>

namespace tlsproxy::tls {

// Routes OpenSSL's allocations through the free lists. To be called before anything else uses OpenSSL,
// which refuses afterwards (CRYPTO_set_mem_functions(3)); false then. The process must use OpenSSL from one
// thread.
bool keep_record_memory();

// Frees the blocks that were kept all the time since the last call, so that memory follows the load down.
// True while some are still kept: worth another call later.
bool trim_record_memory();

// Bytes in the free lists, about 1.2 MB at most.
std::size_t kept_record_memory();

}  // namespace tlsproxy::tls
