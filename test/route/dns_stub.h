// DnsStub: a name server on a loopback port, run by the loop under test. Answers every question as its
// `reply` says at that moment, over UDP and TCP.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "loop/io_event.h"
#include "loop/loop.h"
#include "os/address.h"
#include "os/fd.h"
#include "support/catch.h"

namespace tlsproxy::route {

constexpr int kTypeA = 1;
constexpr int kTypeAaaa = 28;

class DnsStub {
 public:
  enum class Mood { answer, refused, not_found, silent, garbage };

  struct Reply {
    Mood v4 = Mood::answer;
    Mood v6 = Mood::answer;
    std::vector<std::string> addresses;  // of both families
    std::uint32_t ttl = 300;
    bool truncated = false;  // over UDP
  };

  struct Question {
    std::string name;
    int type = 0;
    bool tcp = false;
    loop::TimePoint time;
  };

  explicit DnsStub(loop::Loop& loop) : loop_(loop) {
    // One port for both protocols: another program may hold its TCP side, then another port is tried.
    for (int attempt = 0; attempt < 20 && !tcp_; ++attempt) {
      udp_.reset(::socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      address_ = os::SocketAddress::from_ip("127.0.0.1", 0).value();
      REQUIRE(::bind(udp_.get(), address_.data(), address_.size()) == 0);
      sockaddr_in bound{};
      socklen_t length = sizeof(bound);
      REQUIRE(::getsockname(udp_.get(), reinterpret_cast<sockaddr*>(&bound), &length) == 0);
      address_ = os::SocketAddress::from_sockaddr(reinterpret_cast<sockaddr*>(&bound), length);
      os::Fd tcp(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      if (::bind(tcp.get(), address_.data(), address_.size()) == 0 && ::listen(tcp.get(), 8) == 0) {
        tcp_ = std::move(tcp);
      }
    }
    REQUIRE(tcp_);
    udp_event_.start<&DnsStub::on_datagram>(loop, udp_.get(), loop::IoEvent::Trigger::level_read, *this);
    tcp_event_.start<&DnsStub::on_accept>(loop, tcp_.get(), loop::IoEvent::Trigger::level_read, *this);
  }

  [[nodiscard]] const os::SocketAddress& address() const { return address_; }

  Reply reply;
  std::vector<Question> asked;

 private:
  using Bytes = std::vector<std::uint8_t>;

  struct Connection {
    Connection(DnsStub& its_stub, int fd) : stub(its_stub), socket(fd) {
      event.start<&Connection::on_news>(stub.loop_, fd, loop::IoEvent::Trigger::level_read, *this);
    }
    void on_news(loop::IoNews) {
      std::uint8_t chunk[512];
      const ssize_t size = ::recv(socket.get(), chunk, sizeof(chunk), 0);
      if (size <= 0) return event.stop();
      input.insert(input.end(), chunk, chunk + size);
      while (input.size() >= 2 && input.size() >= 2U + (input[0] * 256U + input[1])) {
        const auto end = input.begin() + 2 + (input[0] * 256 + input[1]);
        Bytes answer = stub.answer_to(Bytes(input.begin() + 2, end), true);
        input.erase(input.begin(), end);
        if (answer.empty()) continue;
        answer.insert(answer.begin(), {static_cast<std::uint8_t>(answer.size() >> 8),
                                       static_cast<std::uint8_t>(answer.size() & 255)});
        // Byte by byte, so that the client has to put the message together again.
        for (const std::uint8_t byte : answer) ::send(socket.get(), &byte, 1, MSG_NOSIGNAL);
      }
    }
    DnsStub& stub;
    os::Fd socket;
    loop::IoEvent event;
    Bytes input;
  };

  void on_datagram(loop::IoNews) {
    std::uint8_t chunk[512];
    sockaddr_in from{};
    socklen_t length = sizeof(from);
    const ssize_t size =
        ::recvfrom(udp_.get(), chunk, sizeof(chunk), 0, reinterpret_cast<sockaddr*>(&from), &length);
    if (size < 12) return;
    const Bytes answer = answer_to(Bytes(chunk, chunk + size), false);
    if (answer.empty()) return;
    ::sendto(udp_.get(), answer.data(), answer.size(), 0, reinterpret_cast<sockaddr*>(&from), length);
  }

  void on_accept(loop::IoNews) {
    const int fd = ::accept4(tcp_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) connections_.push_back(std::make_unique<Connection>(*this, fd));
  }

  // RFC 1035, section 4: the header, the question as it came, and an answer per address.
  Bytes answer_to(const Bytes& query, bool tcp) {
    Question question;
    std::size_t at = 12;
    while (at < query.size() && query[at] != 0) {
      if (!question.name.empty()) question.name += '.';
      question.name.append(query.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                           query.begin() + static_cast<std::ptrdiff_t>(at) + 1 + query[at]);
      at += query[at] + 1U;
    }
    question.type = query[at + 1] * 256 + query[at + 2];
    question.tcp = tcp;
    question.time = loop::Clock::now();
    asked.push_back(question);

    const Mood mood = question.type == kTypeA ? reply.v4 : reply.v6;
    if (mood == Mood::silent) return {};
    Bytes message(query.begin(), query.begin() + static_cast<std::ptrdiff_t>(at) + 5);
    if (mood == Mood::garbage) {
      message.resize(12 + random_() % 40);
      for (std::size_t i = 2; i < message.size(); ++i) message[i] = static_cast<std::uint8_t>(random_());
      return message;
    }
    const bool truncated = reply.truncated && !tcp;
    const std::uint8_t code = mood == Mood::refused ? 5 : mood == Mood::not_found ? 3 : 0;
    message[2] = truncated ? 0x83 : 0x81;
    message[3] = 0x80 | code;
    for (std::size_t i = 4; i < 12; ++i) message[i] = 0;
    message[5] = 1;
    if (mood != Mood::answer || truncated) return message;
    for (const std::string& text : reply.addresses) {
      const auto address = os::SocketAddress::from_ip(text, 0).value();
      if ((address.family() == AF_INET) != (question.type == kTypeA)) continue;
      const auto bytes = *address.ip_bytes();
      const std::size_t size = address.family() == AF_INET ? 4 : 16;
      const auto ttl = reply.ttl;
      message.insert(
          message.end(),
          {0xc0, 12, 0, static_cast<std::uint8_t>(question.type), 0, 1, static_cast<std::uint8_t>(ttl >> 24),
           static_cast<std::uint8_t>(ttl >> 16), static_cast<std::uint8_t>(ttl >> 8),
           static_cast<std::uint8_t>(ttl), 0, static_cast<std::uint8_t>(size)});
      message.insert(message.end(), bytes.end() - static_cast<std::ptrdiff_t>(size), bytes.end());
      ++message[7];
    }
    return message;
  }

  loop::Loop& loop_;
  os::SocketAddress address_;
  os::Fd udp_;
  os::Fd tcp_;
  loop::IoEvent udp_event_;
  loop::IoEvent tcp_event_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::mt19937 random_{1};
};

}  // namespace tlsproxy::route
