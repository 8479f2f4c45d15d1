// Where libevent's small pieces live.
//
// libevent keeps an entry of a few bytes for every descriptor number it has ever watched. Taken from the heap
// when a crowd of sessions comes, each lies between their memory, and holds its page when they are gone. So
// pieces of that size come from chunks of their own, and the pages of the sessions go back to the system.
#pragma once

#include <cstddef>

namespace tlsproxy::loop {

// Before the first call of libevent's, which goes on with what it has otherwise (event_set_mem_functions).
// Again has no effect. One thread uses libevent.
void keep_event_memory_apart();

// Bytes of chunks so far; they are kept for the next crowd.
std::size_t event_memory_bytes();

}  // namespace tlsproxy::loop
