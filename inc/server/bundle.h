// Bundle: one configuration with every file it names, in one sealed descriptor.
//
// The master packs it after the check, workers unpack it: what was checked is what is used, and a worker
// opens no file. The memory behind the descriptor (memfd_create) has no name, is never written to disk,
// and its seals let nobody change it, not even its maker.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "config/files.h"
#include "os/fd.h"

namespace tlsproxy::server {

struct Bundle {
  std::string file_name;  // of the configuration, for messages
  std::string text;       // of the configuration
  config::FileMap files;  // by the name the configuration gives them
};

// Packs into a sealed descriptor. The content goes straight into it: no copy of a key is left in the
// heap.
base::Result<os::Fd> seal_bundle(std::string_view file_name, std::string_view text,
                                 const config::FileMap& files);

// Reads what seal_bundle() made; an error when the descriptor is not sealed or the content is damaged.
base::Result<Bundle> open_bundle(int fd);

// The layout, on plain bytes. encode() needs exactly encoded_size() bytes of space; decode() takes
// nothing but a whole, well-formed bundle.
std::size_t encoded_size(std::string_view file_name, std::string_view text, const config::FileMap& files);
void encode_bundle(std::string_view file_name, std::string_view text, const config::FileMap& files,
                   std::span<char> space);
base::Result<Bundle> decode_bundle(std::string_view bytes);

}  // namespace tlsproxy::server
