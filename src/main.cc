#include "server/command_line.h"

int main(int argc, char** argv) {
  return tlsproxy::server::run(argc, argv);
}
