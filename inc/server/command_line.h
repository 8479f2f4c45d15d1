// The command line: what the program was asked to do, and doing it.
#pragma once

namespace tlsproxy::server {

// Exit status: 0 done, 1 an error (told on stderr), 2 wrong usage.
int run(int argc, char** argv);

}  // namespace tlsproxy::server
