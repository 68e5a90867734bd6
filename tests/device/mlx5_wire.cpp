// The device library's mlx5 entries against vectors that the host has built: each line of the file is built here too, into a
// poisoned ring, and compared byte for byte. Then what lines cannot say: rings over many laps.
#include <warpbell/mlx5/cqe.cuh>
#include <warpbell/mlx5/send_ring.cuh>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

using namespace warpbell;
using namespace warpbell::mlx5;

namespace {

std::string context;

void check(bool good, const char* what) {
  if (good) return;
  std::printf("%s: %s\n", context.c_str(), what);
  std::exit(1);
}

using bytes = std::vector<unsigned char>;

bytes unhex(const std::string& digits) {
  bytes b;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    b.push_back(static_cast<unsigned char>(std::stoul(digits.substr(i, 2), nullptr, 16)));
  }
  return b;
}

struct line {
  std::string what;
  std::map<std::string, uint64_t> values;
  bytes inlined;
  bytes expected;

  explicit line(const std::string& text) {
    const size_t colon = text.find(" : ");
    std::istringstream head(text.substr(0, colon));
    head >> what;
    for (std::string p; head >> p;) {
      const size_t equals = p.find('=');
      const std::string name = p.substr(0, equals), value = p.substr(equals + 1);
      if (name == "inline") {
        inlined = unhex(value);
      } else {
        values[name] = std::strtoull(value.c_str(), nullptr, 0);
      }
    }
    if (colon == std::string::npos) return;
    std::string digits;
    for (char c : text.substr(colon + 3)) {
      if (c != ' ') digits += c;
    }
    expected = unhex(digits);
  }
  uint64_t at(const char* name) const {
    const auto found = values.find(name);
    check(found != values.end(), name);
    return found->second;
  }
  uint64_t or_zero(const char* name) const {
    const auto found = values.find(name);
    return found == values.end() ? 0 : found->second;
  }
  uint32_t small(const char* name) const { return static_cast<uint32_t>(or_zero(name)); }
};

constexpr uint32_t log_blocks = 3;
constexpr unsigned char poison = 0xcc;

struct ring_memory {
  alignas(64) unsigned char bytes[block_bytes << log_blocks];

  ring_memory() { std::memset(bytes, poison, sizeof bytes); }
  send_ring ring() const { return send_ring(reinterpret_cast<uint64_t>(bytes), log_blocks); }
  unsigned char byte(uint64_t index, size_t i) const { return bytes[(index % (1u << log_blocks) * block_bytes + i) % sizeof bytes]; }
};

template <uint32_t words> inline_words<words> words_of(const bytes& from) {
  inline_words<words> p{};
  std::memcpy(p.w, from.data(), from.size());
  return p;
}

// Data of any length, as the lanes of a warp would write it: word by word behind the front.
void long_inline_write(const send_ring& ring, uint64_t index, queue_word queue, uint32_t how, remote to, const bytes& data) {
  const uint32_t length = static_cast<uint32_t>(data.size());
  const inline_front front = inline_write_front(index, queue, how, to, length);
  for (uint32_t i = 0; i < blocks_of(inline_write_segments(length)); ++i) {
    ring.store(index + i, block{{empty_segment(), empty_segment(), empty_segment(), empty_segment()}});
  }
  order::store_quad(reinterpret_cast<void*>(ring.at(index, 0)), front.control);
  order::store_quad(reinterpret_cast<void*>(ring.at(index, segment_bytes)), front.remote);
  std::memcpy(reinterpret_cast<void*>(ring.at(index, 2 * segment_bytes)), &front.header, 4);
  for (uint32_t i = 0; i < length; i += 4) {
    const uint32_t left = length - i < 4 ? length - i : 4;
    std::memcpy(reinterpret_cast<void*>(ring.at(index, inline_write_at + i)), data.data() + i, left);
  }
}

// Builds the entry of a line; false if the line is about something else.
bool build(const line& l, const send_ring& ring) {
  const uint64_t index = l.or_zero("index");
  const queue_word queue = queue_of(l.small("qpn"));
  const uint32_t how = l.small("flags"), n = l.small("bytes");
  const remote r{l.or_zero("raddr"), big(l.small("rkey"))};
  const local p{l.or_zero("laddr"), big(l.small("lkey"))};
  const be32 imm = big(l.small("imm"));
  const uint64_t a = l.or_zero("a"), b = l.or_zero("b"), c = l.or_zero("c"), d = l.or_zero("d");
  const uint32_t a4 = l.small("a"), b4 = l.small("b"), c4 = l.small("c"), d4 = l.small("d");
  const half_address half{l.or_zero("dc_key"), l.small("dct"), l.small("rate_level"), l.small("path"), l.small("rlid")};
  const global_address global{l.or_zero("rmac"), l.small("tclass"), l.small("hops"), l.small("grh"), l.or_zero("rgid_high"), l.or_zero("rgid_low")};
  const std::string& w = l.what;
  if (w == "nop") ring.store(index, nop(index, queue, how));
  else if (w == "write" && n) ring.store(index, write(index, queue, how, r, p, n));
  else if (w == "write") ring.store(index, empty_write(index, queue, how, r));
  else if (w == "write_imm" && n) ring.store(index, write_imm(index, queue, how, r, p, n, imm));
  else if (w == "write_imm") ring.store(index, empty_write_imm(index, queue, how, r, imm));
  else if (w == "read") ring.store(index, read(index, queue, how, r, p, n));
  else if (w == "send") ring.store(index, send(index, queue, how, p, n));
  else if (w == "send_imm") ring.store(index, send_imm(index, queue, how, p, n, imm));
  else if (w == "send_inval") ring.store(index, send_inval(index, queue, how, p, n, imm));
  else if (w == "inline_write" && l.inlined.size() <= inline_write_max) ring.store(index, inline_write(index, queue, how, r, words_of<7>(l.inlined), static_cast<uint32_t>(l.inlined.size())));
  else if (w == "inline_write") long_inline_write(ring, index, queue, how, r, l.inlined);
  else if (w == "inline_send") ring.store(index, inline_send(index, queue, how, words_of<11>(l.inlined), static_cast<uint32_t>(l.inlined.size())));
  else if (w == "fetch_add") ring.store(index, fetch_add(index, queue, how, r, p, a));
  else if (w == "compare_swap") ring.store(index, compare_swap(index, queue, how, r, p, b, a));
  else if (w == "masked_add32") ring.store(index, masked_add(index, queue, how, r, p, add_operands<uint32_t>{a4, b4}));
  else if (w == "masked_add64") ring.store(index, masked_add(index, queue, how, r, p, add_operands<uint64_t>{a, b}));
  else if (w == "masked_swap32") ring.store(index, masked_swap(index, queue, how, r, p, swap_operands<uint32_t>{a4, b4, c4, d4}));
  else if (w == "masked_swap64") ring.store(index, masked_swap(index, queue, how, r, p, swap_operands<uint64_t>{a, b, c, d}));
  else if (w == "add32") ring.store(index, masked_add(index, queue, how, r, p, as_add(a4)));
  else if (w == "add64") ring.store(index, masked_add(index, queue, how, r, p, as_add(a)));
  else if (w == "fetch32") ring.store(index, masked_add(index, queue, how, r, p, as_fetch<uint32_t>()));
  else if (w == "fetch64") ring.store(index, masked_add(index, queue, how, r, p, as_fetch<uint64_t>()));
  else if (w == "xor32") ring.store(index, masked_add(index, queue, how, r, p, as_xor(a4)));
  else if (w == "xor64") ring.store(index, masked_add(index, queue, how, r, p, as_xor(a)));
  else if (w == "set32") ring.store(index, masked_swap(index, queue, how, r, p, as_set(a4)));
  else if (w == "set64") ring.store(index, masked_swap(index, queue, how, r, p, as_set(a)));
  else if (w == "and32") ring.store(index, masked_swap(index, queue, how, r, p, as_and(a4)));
  else if (w == "and64") ring.store(index, masked_swap(index, queue, how, r, p, as_and(a)));
  else if (w == "or32") ring.store(index, masked_swap(index, queue, how, r, p, as_or(a4)));
  else if (w == "or64") ring.store(index, masked_swap(index, queue, how, r, p, as_or(a)));
  else if (w == "cswap32") ring.store(index, masked_swap(index, queue, how, r, p, as_compare_swap(b4, a4)));
  else if (w == "dump") ring.store(index, dump(index, queue, how, p, n));
  else if (w == "wait") ring.store(index, wait(index, queue, how, l.small("cqn"), l.small("number")));
  else if (w == "dc_write" && l.values.count("rmac")) ring.store(index, dc_write(index, queue, how, half, global, r, p, n));
  else if (w == "dc_write") ring.store(index, dc_write(index, queue, how, half, r, p, n));
  else return false;
  return true;
}

bool entry(const line& l) {
  ring_memory m;
  const uint64_t index = l.or_zero("index");
  if (!build(l, m.ring())) return false;
  const size_t filled = (l.expected.size() + block_bytes - 1) / block_bytes * block_bytes;
  check(filled > 0, "no bytes to compare with");
  for (size_t i = 0; i < sizeof m.bytes; ++i) {
    const unsigned char want = i < l.expected.size() ? l.expected[i] : i < filled ? 0 : poison;
    if (m.byte(index, i) == want) continue;
    std::printf("byte %zu is %02x, not %02x\n", i, m.byte(index, i), want);
    check(false, "the entry differs");
  }
  return true;
}

void compare(const bytes& expected, const void* built, size_t length) {
  check(expected.size() == length && std::memcmp(expected.data(), built, length) == 0, "the bytes differ");
}

cqe_tail tail_of(const bytes& b) {
  check(b.size() == 16, "the last 16 bytes of an entry are needed");
  order::quad q;
  std::memcpy(&q, b.data(), 16);
  return cqe_tail(q);
}

// A last byte as the word that it ends.
cqe_state with_last_byte(uint32_t op_own) { return cqe_state(op_own << 24); }

uint32_t log2_of(uint64_t n) { return static_cast<uint32_t>(__builtin_ctzll(n)); }

void question(const line& l) {
  if (l.what == "doorbell") {
    const uint64_t d = doorbell(l.at("next"), queue_of(l.small("qpn")));
    compare(l.expected, &d, sizeof d);
  } else if (l.what == "qp_record") {
    const qp_record r{receive_record(l.at("receive")), send_record(l.at("send"))};
    compare(l.expected, &r, sizeof r);
  } else if (l.what == "cq_record") {
    const uint32_t r[2] = {consumer_record(l.at("consumed")), 0};
    compare(l.expected, r, sizeof r);
  } else if (l.what == "cqe") {
    const cqe_tail t = tail_of(l.expected);
    check(t.state().opcode() == l.at("kind") && t.state().owner() == l.at("owner"), "kind or owner");
    check(t.wqe_opcode() == l.at("opcode") && t.qpn() == l.at("qpn"), "opcode or queue pair");
    check(t.state().wqe_counter() == l.at("counter"), "counter");
    const uint64_t kind = l.at("kind");
    check(t.state().is_error() == (kind == cqe_requester_error || kind == cqe_responder_error), "error");
    if (t.state().is_error()) {
      check(t.syndrome() == l.at("syndrome") && t.vendor_syndrome() == l.at("vendor"), "syndromes");
      check(t.hardware_syndrome() == l.or_zero("hardware") && t.hardware_syndrome_type() == l.or_zero("hardware_type"), "hardware syndrome");
      check(t.is_flush() == (l.at("syndrome") == syndrome_flushed), "flush");
    }
  } else if (l.what == "ring") {
    const completion_ring r(0, log2_of(l.at("entries")));
    check(r.is_written(l.at("ci"), with_last_byte(l.small("op_own"))) == (l.at("written") != 0), "written or not");
  } else if (l.what == "collapsed") {
    const collapsed c(log2_of(l.at("entries")));
    const uint32_t counter = l.small("counter");
    const bool done = c.is_complete(l.at("index"), counter);
    check((done ? collapsed::completed(l.at("index"), counter) : 0) == l.at("completed"), "complete or not");
  } else {
    check(false, "a kind of line that is not known");
  }
}

uint64_t random_state;
uint64_t draw() {
  uint64_t x = random_state += 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

// More blocks than 16 bits count, in entries of one, two and five blocks, through the smallest ring that RDMA libraries use.
void laps() {
  context = "laps";
  constexpr uint32_t log = 7;
  std::vector<block> memory((1u << log) + 1);
  const send_ring ring((reinterpret_cast<uint64_t>(memory.data()) + 63) & ~uint64_t{63}, log);
  const queue_word queue = queue_of(0x123456);
  uint64_t index = 0xff00, seen = index, across = 0;
  while (index < 0xff00 + 70000) {
    const uint32_t turn = static_cast<uint32_t>(draw() % 3);
    uint32_t filled = 1;
    if (turn == 0) {
      ring.store(index, nop(index, queue, signalled));
    } else if (turn == 1) {
      ring.store(index, masked_swap(index, queue, unsignalled, remote{1, big(2)}, local{3, big(4)}, as_set(index)));
      filled = 2;
    } else {
      long_inline_write(ring, index, queue, unsignalled, remote{1, big(2)}, bytes(256, 0x5a));
      filled = 5;
    }
    const unsigned char* front = reinterpret_cast<const unsigned char*>(ring.at(index));
    check((front[1] << 8 | front[2]) == static_cast<int>(index & 0xffff), "the index is not the wire's 16 bits");
    check(blocks_of(front[7]) == filled, "the entry says another length");
    across += ring.at(index + filled - 1) < ring.at(index);
    if (filled == 2) {
      const unsigned char landing[4] = {0, 0, 0, 8};
      check(std::memcmp(reinterpret_cast<const void*>(ring.at(index, 64)), landing, 4) == 0, "the second block is not there");
      check(ring.at(index, 64) == ring.at(index + 1), "the second block is elsewhere");
    }
    index += filled;
    const uint32_t record = send_record(index);
    seen = advance(seen, swap_bytes(record));
    check(seen == index, "the record does not say where the queue is");
    check(advance(index - filled, static_cast<uint32_t>(swap_bytes(doorbell(index, queue)) >> 40)) == index, "the doorbell does not say it");
    check(ring.has_room(index, filled, index + filled - ring.blocks()), "there is room");
    check(!ring.has_room(index, filled, index + filled - ring.blocks() - 1), "there is no room");
    check(ring.must_complete(index) == static_cast<int64_t>(index) - 128, "what must have completed");
  }
  check(across > 100, "too few entries went across the ring's end");
}

// Both ways of finding out what is complete, against what is.
void progress() {
  context = "progress";
  for (int i = 0; i < 200000; ++i) {
    const uint32_t log = 7 + static_cast<uint32_t>(draw() % 9);
    const uint64_t blocks = uint64_t{1} << log, rung = 65536 + (draw() >> 20);
    const uint64_t done = rung - draw() % (blocks + 1), asked = rung - draw() % blocks;
    const uint32_t counter = static_cast<uint32_t>(done - 1) & 0xffffu;
    const collapsed c(log);
    check(c.is_complete(asked, counter) == (asked <= done), "complete or not");
    if (asked <= done) check(collapsed::completed(asked, counter) == done, "how far");
    check(collapsed::completed_before(rung, counter) == done, "how far back");
    // A ring: entry `n` is new in its own lap only.
    const completion_ring r(0, log);
    const uint64_t n = draw() >> 24, laps = draw() % 4;
    const cqe_state s = with_last_byte(static_cast<uint32_t>(n >> log & 1u));
    check(r.is_written(n + laps * blocks, s) == (laps % 2 == 0), "new or old");
    check(r.at(n) == (n & (blocks - 1)) * 64 && r.at(n + blocks) == r.at(n), "place");
    check(!r.is_written(n, with_last_byte(cqe_never_written)) && !r.is_written(n, with_last_byte(0xff)), "never written");
  }
}

}  // namespace

int main(int argc, char** argv) {
  size_t entries = 0, questions = 0;
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i]);
    check(file.good(), "the file of vectors cannot be read");
    for (std::string text; std::getline(file, text);) {
      if (text.empty() || text[0] == '#') continue;
      context = text;
      const line l(text);
      if (entry(l)) {
        ++entries;
      } else {
        question(l);
        ++questions;
      }
    }
  }
  context = "permute";
  check(permute(0x33221100u, 0x77665544u, 0x7014u) == 0x77001144u, "bytes are not where they were asked for");
  check(swap_bytes(uint64_t{0x0102030405060708}) == 0x0807060504030201, "eight bytes");
  check(landed(0x04030201u) == 0x01020304u, "four bytes");
  laps();
  progress();
  std::printf("mlx5 wire: width %d, %zu entries, %zu questions: ok\n", WB_WARP_WIDTH, entries, questions);
}
