// Against the published examples. That it agrees with OpenSSL's own is in provider_test.cc.
#include "tls/hkdf.h"

#include <string>
#include <string_view>
#include <vector>

#include "support/catch.h"

namespace tlsproxy::tls {
namespace {

using Octets = std::vector<unsigned char>;

Octets from_hex(std::string_view digits) {
  Octets octets;
  for (std::size_t at = 0; at + 1 < digits.size(); at += 2) {
    octets.push_back(static_cast<unsigned char>(std::stoi(std::string(digits.substr(at, 2)), nullptr, 16)));
  }
  return octets;
}

// `first`, `first` + 1, ...
Octets counting(unsigned char first, std::size_t size) {
  Octets octets(size);
  for (unsigned char& octet : octets) octet = first++;
  return octets;
}

Bytes text(std::string_view words) {
  return {reinterpret_cast<const unsigned char*>(words.data()), words.size()};
}

Label tls13(std::string_view name) {
  return {text("tls13 "), text(name)};
}

Octets extract(Hash hash, Bytes salt, Bytes input) {
  Octets secret(size_of(hash));
  hkdf_extract(hash, salt, input, secret);
  return secret;
}

Octets expand(Hash hash, Bytes secret, Bytes info, std::size_t size) {
  Octets out(size);
  REQUIRE(hkdf_expand(hash, secret, info, out));
  return out;
}

Octets expand_label(Bytes secret, std::string_view name, Bytes context, std::size_t size) {
  Octets out(size);
  REQUIRE(hkdf_expand_label(Hash::sha256, secret, tls13(name), context, out));
  return out;
}

Octets next_secret(Bytes previous, Bytes input) {
  Octets out(32);
  REQUIRE(hkdf_next_secret(Hash::sha256, previous, tls13("derived"), input, out));
  return out;
}

}  // namespace

TEST_CASE("HMAC gives the codes of RFC 4231, for keys longer than a block as well", "[tls_hkdf]") {
  // Extraction is HMAC under the salt. Test cases 1 and 6.
  CHECK(extract(Hash::sha256, Octets(20, 0x0b), text("Hi There")) ==
        from_hex("b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"));
  CHECK(extract(Hash::sha384, Octets(20, 0x0b), text("Hi There")) ==
        from_hex("afd03944d84895626b0825f4ab46907f15f9dadbe4101ec682aa034c7cebc59c"
                 "faea9ea9076ede7f4af152e8b2fa9cb6"));
  const std::string_view words = "Test Using Larger Than Block-Size Key - Hash Key First";
  CHECK(extract(Hash::sha256, Octets(131, 0xaa), text(words)) ==
        from_hex("60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"));
  CHECK(extract(Hash::sha384, Octets(131, 0xaa), text(words)) ==
        from_hex("4ece084485813e9088d2c63a041bc5b44f9ef1012a2b588f3cd11f05033ac4c6"
                 "0c2ef6ab4030fe8296248df163f44952"));
}

TEST_CASE("HKDF gives the keys of RFC 5869, over several blocks and without salt and info", "[tls_hkdf]") {
  const Octets first = extract(Hash::sha256, counting(0x00, 13), Octets(22, 0x0b));
  CHECK(first == from_hex("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5"));
  CHECK(expand(Hash::sha256, first, counting(0xf0, 10), 42) ==
        from_hex("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"));

  const Octets second = extract(Hash::sha256, counting(0x60, 80), counting(0x00, 80));
  CHECK(second == from_hex("06a6b88c5853361a06104c9ceb35b45cef760014904671014a193f40c15fc244"));
  CHECK(expand(Hash::sha256, second, counting(0xb0, 80), 82) ==
        from_hex("b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c"
                 "59045a99cac7827271cb41c65e590e09da3275600c2f09b8367793a9aca3db71"
                 "cc30c58179ec3e87c14c01d5c1f3434f1d87"));

  const Octets third = extract(Hash::sha256, {}, Octets(22, 0x0b));
  CHECK(third == from_hex("19ef24a32c717b167f33a91d6f648bdf96596776afdb6377ac434c1c293ccb04"));
  CHECK(expand(Hash::sha256, third, {}, 42) ==
        from_hex("8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"));
}

TEST_CASE("the key schedule gives the secrets of the handshake in RFC 8448, 3", "[tls_hkdf]") {
  const Octets zeros(32, 0);
  const Octets early = next_secret({}, zeros);
  CHECK(early == from_hex("33ad0a1c607ec03b09e6cd9893680ce210adf300aa1f2660e1b22e10f170f92a"));
  const Octets handshake =
      next_secret(early, from_hex("8bd4054fb55b9d63fdfbacf9f04b9f0d35e6d63f537563efd46272900f89492d"));
  CHECK(handshake == from_hex("1dc826e93606aa6fdc0aadc12f741b01046aa6b99f691ed221a9f0ca043fbeac"));
  const Octets hellos = from_hex("860c06edc07858ee8e78f0e7428c58edd6b43f2ca3e6e95f02ed063cf0e1cad8");
  CHECK(expand_label(handshake, "c hs traffic", hellos, 32) ==
        from_hex("b3eddb126e067f35a780b3abf45e2d8f3b1a950738f52e9600746a0e27a55a21"));
  const Octets server = expand_label(handshake, "s hs traffic", hellos, 32);
  CHECK(server == from_hex("b67b7d690cc16c4e75e54213cb2d37b4e9c912bcded9105d42befd59d391ad38"));
  CHECK(expand_label(server, "key", {}, 16) == from_hex("3fce516009c21727d0f2e4e86ee403bc"));
  CHECK(expand_label(server, "iv", {}, 12) == from_hex("5d313eb2671276ee13000b30"));
  CHECK(next_secret(handshake, zeros) ==
        from_hex("18df06843d13a08bf2a449844c5f8a478001bc4d4c627984d5a41da8d0402919"));
}

TEST_CASE("what a length field cannot say is refused, the longest that it can is not", "[tls_hkdf]") {
  const Octets secret(32, 1);
  const Octets long_name(249, 'x');  // with "tls13 " 255 bytes
  const Octets long_context(255, 2);
  Octets out(32, 0x55);
  CHECK(hkdf_expand_label(Hash::sha256, secret, {text("tls13 "), long_name}, long_context, out));
  const Octets derived = out;
  CHECK_FALSE(hkdf_expand_label(Hash::sha256, secret, {text("tls13 x"), long_name}, {}, out));
  CHECK_FALSE(hkdf_expand_label(Hash::sha256, secret, tls13("x"), Octets(256, 2), out));
  CHECK_FALSE(hkdf_next_secret(Hash::sha256, secret, {text("tls13 x"), long_name}, {}, out));
  CHECK(out == derived);
  for (const Hash hash : {Hash::sha256, Hash::sha384}) {
    Octets most(255 * size_of(hash));
    CHECK(hkdf_expand(hash, secret, {}, most));
    Octets more(most.size() + 1, 0);
    CHECK_FALSE(hkdf_expand(hash, secret, {}, more));
    CHECK(more == Octets(more.size(), 0));
  }
}

}  // namespace tlsproxy::tls
