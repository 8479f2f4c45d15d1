#include "record/close_reason.h"

namespace tlsproxy::record {

// The switches have no default, so that -Wswitch names a reason that was added without an answer.

std::string_view to_string(Side side) {
  switch (side) {
    case Side::client:
      return "client";
    case Side::backend:
      return "backend";
    case Side::proxy:
      return "proxy";
  }
  return {};
}

std::string_view to_string(CloseReason reason) {
  switch (reason) {
    case CloseReason::finished:
      return "finished";
    case CloseReason::client_left:
      return "client_left";
    case CloseReason::not_tls:
      return "not_tls";
    case CloseReason::bad_hello:
      return "bad_hello";
    case CloseReason::handshake_failed:
      return "handshake_failed";
    case CloseReason::certificate_rejected:
      return "certificate_rejected";
    case CloseReason::name_changed:
      return "name_changed";
    case CloseReason::no_route:
      return "no_route";
    case CloseReason::no_backend:
      return "no_backend";
    case CloseReason::backend_tls_failed:
      return "backend_tls_failed";
    case CloseReason::backend_rejected:
      return "backend_rejected";
    case CloseReason::reset:
      return "reset";
    case CloseReason::truncated:
      return "truncated";
    case CloseReason::protocol_error:
      return "protocol_error";
    case CloseReason::preread_timeout:
      return "preread_timeout";
    case CloseReason::handshake_timeout:
      return "handshake_timeout";
    case CloseReason::connect_timeout:
      return "connect_timeout";
    case CloseReason::idle_timeout:
      return "idle_timeout";
    case CloseReason::write_timeout:
      return "write_timeout";
    case CloseReason::half_close_timeout:
      return "half_close_timeout";
    case CloseReason::drain:
      return "drain";
    case CloseReason::stopped:
      return "stopped";
    case CloseReason::no_descriptor:
      return "no_descriptor";
    case CloseReason::no_memory:
      return "no_memory";
  }
  return {};
}

bool is_orderly(CloseReason reason) {
  switch (reason) {
    case CloseReason::finished:
    case CloseReason::client_left:
    // No stream had begun, so nothing of one can be missing. (A failed handshake sends its alert; there is
    // no close_notify before a handshake is complete, whatever this says.)
    case CloseReason::not_tls:
    case CloseReason::bad_hello:
    case CloseReason::handshake_failed:
    case CloseReason::certificate_rejected:
    case CloseReason::name_changed:
    case CloseReason::handshake_timeout:
    case CloseReason::no_route:
    case CloseReason::no_backend:
    case CloseReason::backend_tls_failed:
    case CloseReason::backend_rejected:
    case CloseReason::preread_timeout:
    case CloseReason::connect_timeout:
    case CloseReason::no_descriptor:
    // Our own decision, between bytes.
    case CloseReason::idle_timeout:
    case CloseReason::half_close_timeout:
    case CloseReason::drain:
    case CloseReason::stopped:
      return true;
    // Bytes are missing, or may be.
    case CloseReason::reset:
    case CloseReason::truncated:
    case CloseReason::protocol_error:
    case CloseReason::write_timeout:
    case CloseReason::no_memory:
      return false;
  }
  return false;
}

}  // namespace tlsproxy::record
