// Stress test of RDMA adapters' send queues: several warps against a model adapter, on rings from the smallest, with faults.
// Compiled with WB_WARP_WIDTH 1, 4 and 32, plain and under ThreadSanitizer.
#include "send_queue_stand.h"

using namespace model;

namespace {

uint32_t rounds = warp::width == 1 ? 300 : warp::width == 4 ? 20 : 6;  // times the scale

// Executes one operation of each lane that wants, and checks its effects. `kind` is the same in all lanes of the mask.
constexpr uint32_t kinds = 18;
void operate(stand& st, rng& r, uint32_t kind, uint32_t round, lanes l) {
  lane_memory& m = st.mine();
  const send_queue_ref q = st.a.queue(r.below(st.a.opt.queues));
  auto done = [&](request rq, const char* what) {
    const outcome o = q.wait(l.mask, l.wants, rq);
    if (l.wants) expect_done(o, what);
  };
  const uint32_t n = r.below(area + 1);
  switch (kind) {
    case 0:
      fill(m.near, n, round);
      done(q.write(there(m.far), here(m.near), n, l), "a write");
      if (l.wants) check(holds(m.far, n, round), "a write is done and its data is not there");
      break;
    case 1: {
      const uint32_t few = r.below(inline_write_max + 1);
      write_payload p = {};
      for (uint32_t i = 0; i < few; ++i) reinterpret_cast<char*>(p.w)[i] = byte_of(round, i);
      done(q.write_inline(there(m.far + 1), p, few, l), "an inline write");
      if (l.wants) check(holds(m.far + 1, few, round), "an inline write is done and its data is not there");
      break;
    }
    case 2: {
      const uint32_t few = r.below(staging_bytes + 1);
      char source[staging_bytes];
      fill(source, few, round);
      done(q.write_copied(there(m.far), reinterpret_cast<uint64_t>(source), few, l), "a staged write");
      if (l.wants) check(holds(m.far, few, round), "a staged write is done and its data is not there");
      break;
    }
    case 3:
      fill(m.near, n, round);
      done(q.write_imm(there(m.far), here(m.near), n, big(round), l), "a write with immediate");
      if (l.wants) check(holds(m.far, n, round), "a write with immediate is done and its data is not there");
      break;
    case 4:
      fill(m.far, n, round);
      done(q.read(there(m.far), here(m.near), n, landing::flushed, l), "a read");
      if (l.wants) check(holds(m.near, n, round), "a read is done and its data is not there");
      break;
    case 5: {
      fill(m.far, n, round);
      const request posted = q.read(there(m.far), here(m.near), n, landing::later, l);
      const request flushed = q.flush(here(m.near), l);
      done(flushed.in_flight() ? flushed : posted, "a read and a flush");
      if (l.wants) check(holds(m.near, n, round), "a read is flushed and its data is not there");
      break;
    }
    case 6: {
      const uint32_t few = r.below(staging_bytes + 1);
      fill(m.far, few, round);
      char target[staging_bytes] = {};
      const outcome o = q.fetch(there(m.far), few, reinterpret_cast<uint64_t>(target), l);
      if (l.wants) expect_done(o, "a fetch");
      if (l.wants) check(holds(target, few, round), "a fetch is done and its data was not there");
      break;
    }
    case 7: {
      uint64_t old = ~0ull;
      const outcome o = q.fetch_add(there(&st.counter64), 1, old, l);
      if (!l.wants) break;
      expect_done(o, "a fetch-add");
      st.sum64 += old;
      st.added64 += 1;
      break;
    }
    case 8: {
      uint32_t old = ~0u;
      const outcome o = q.fetch_masked_add(there(&st.counter32), as_add<uint32_t>(1), old, l);
      if (!l.wants) break;
      expect_done(o, "a 32-bit fetch-add");
      st.sum32 += old;
      st.added32 += 1;
      break;
    }
    case 9: {
      // Until it succeeds: each lane adds one to the value that it has seen.
      uint64_t seen = 0;
      for (lanes left = l; warp::any(left.mask, left.wants);) {
        uint64_t old = 0;
        const outcome o = q.fetch_compare_swap(there(&st.swapped), seen, seen + 1, old, left);
        if (!left.wants) continue;
        expect_done(o, "a compare-swap");
        left.wants = old != seen;
        seen = old;
      }
      if (l.wants) st.swaps += 1;
      break;
    }
    case 10: {
      const uint64_t value = r.g(), mask = r.g();
      if (l.wants) order::store<order::release>(&m.word64, value);
      uint64_t old = 0;
      const outcome o = q.fetch_masked_swap(there(&m.word64), as_or<uint64_t>(mask), old, l);
      if (l.wants) expect_done(o, "a fetch-or");
      done(q.masked_swap(there(&m.word64), as_and<uint64_t>(~value), l), "an and");
      if (l.wants) check(old == value && order::load<order::acquire>(&m.word64) == (mask & ~value), "64-bit or, and: wrong value");
      break;
    }
    case 11: {
      const uint32_t value = static_cast<uint32_t>(r.g()), mask = static_cast<uint32_t>(r.g());
      done(q.masked_swap(there(&m.word32), as_set<uint32_t>(value), l), "a set");
      uint32_t old = 0;
      const outcome o = q.fetch_masked_add(there(&m.word32), as_xor<uint32_t>(mask), old, l);
      if (l.wants) expect_done(o, "a fetch-xor");
      done(q.masked_add(there(&m.word32), as_add<uint32_t>(3), l), "an add");
      if (l.wants) check(old == value && order::load<order::acquire>(&m.word32) == (value ^ mask) + 3, "32-bit set, xor, add: wrong value");
      break;
    }
    case 12:
    case 13: {
      // A thread that sees the signal sees the data, whatever the request's outcome.
      const bool add = r.below(2) != 0, in_entry = kind == 13;
      const uint32_t size = in_entry ? r.below(inline_write_max + 1) : n;
      const uint64_t before = l.wants ? order::load<order::acquire>(&m.signal) : 0, by = 1 + r.below(1000);
      write_payload p = {};
      for (uint32_t i = 0; i < size && in_entry; ++i) reinterpret_cast<char*>(p.w)[i] = byte_of(round, i);
      if (!in_entry) fill(m.near, size, round);
      const signal_op op = add ? signal_op::add : signal_op::set;
      const uint64_t value = add ? by : before + by;
      const request rq = in_entry ? q.put_signal_inline(there(m.far), p, size, there(&m.signal), op, value, l)
                                  : q.put_signal(there(m.far), here(m.near), size, there(&m.signal), op, value, l);
      if (l.wants) {
        check(rq.in_flight(), "a put with signal ended in " + std::to_string(rq.word));
        while (order::load<order::acquire>(&m.signal) == before) cpu::yield();
        check(order::load<order::acquire>(&m.signal) == before + by, "a signal has a wrong value");
        check(holds(m.far, size, round), "a signal is there before its data");
      }
      done(rq, "a put with signal");
      break;
    }
    case 14: {
      // Some in flight; the last one on the queue covers all.
      request last;
      for (uint32_t i = 0; i < 5; ++i) {
        const request next = i % 2 ? q.signal(there(&m.signal), signal_op::add, 1, l) : q.nop(l);
        if (l.wants) check(next.in_flight(), "a request was not posted");
        last = next;
      }
      done(last, "the last of several");
      break;
    }
    case 15: {
      const request rq = q.nop(l);
      outcome o;
      for (lanes left = l; warp::any(left.mask, left.wants);) {
        if (q.test(left.mask, left.wants, rq, o)) left.wants = false;
        cpu::yield();
      }
      if (l.wants) expect_done(o, "a request that was tested");
      break;
    }
    case 16: {
      fill(m.near, n, round);
      q.write(there(m.far), here(m.near), n, l);
      const outcome o = q.quiet(l.mask, l.wants);
      if (l.wants) expect_done(o, "a quiet");
      if (l.wants) check(holds(m.far, n, round), "everything is done and some data is not there");
      break;
    }
    default: done(q.signal(there(&m.signal), r.below(2) ? signal_op::set : signal_op::add, 5, l), "a signal");
  }
}

// Tests everything at once, on one shape of queue.
void mixed(const options& o) {
  std::printf("  mixed: blocks %u queues %u%s%s first ticket %#x\n", 1u << o.log_blocks, o.queues, o.collapsed ? " collapsed" : "",
              o.consistency ? " flushed" : "", o.first_ticket);
  stand st(o);
  run(warps, [&] {
    rng r(o.seed);
    std::mt19937_64 alike(o.seed + warp::index());
    for (uint32_t i = 0; i < rounds; ++i) {
      const uint32_t kind = static_cast<uint32_t>(alike() % kinds);
      if (alike() % 3) operate(st, r, kind, i, lanes{warp::full(), r.below(4) != 0});
      else operate(st, r, r.below(kinds), i, lanes::here());
      warp::sync(warp::full());
    }
  });
  st.drain("mixed");
  const uint64_t n = st.added64, k = st.added32;
  check(st.counter64 == n && st.sum64 == n * (n - 1) / 2, "fetch-adds: an addition was lost or doubled");
  check(st.counter32 == k && st.sum32 == k * (k - 1) / 2, "32-bit fetch-adds: an addition was lost or doubled");
  check(st.swapped == st.swaps, "compare-swaps: one was lost or doubled");
}

// Tests more blocks than 16 bits count, of entries of one and two blocks, across the ring's end.
void laps(const options& base, uint32_t blocks) {
  options o = base;
  o.log_blocks = 7;
  std::printf("  laps: %u blocks%s first ticket %#x\n", blocks, o.collapsed ? " collapsed" : "", o.first_ticket);
  stand st(o);
  std::atomic<uint64_t> posted{0};
  run(warps, [&] {
    const send_queue_ref q = st.a.queue(0);
    rng r(o.seed);
    std::mt19937_64 alike(o.seed + warp::index());
    lane_memory& m = st.mine();
    const lanes l{warp::full(), true};
    uint64_t sum = 0;
    // Lanes must go on together, and each sees the ticket at another moment: one lane that has read the end decides for all.
    for (bool over = false; !over; over = warp::any(warp::full(), order::load<order::relaxed>(&q.q->ticket) - o.first_ticket >= blocks)) {
      request rq;
      for (uint32_t i = 0; i < 8; ++i) {
        const uint64_t v = r.g() >> 8;
        switch (alike() % 3) {
          case 0: rq = q.write_inline(there(&m.word64), payload_of(v), 8, l); break;
          case 1:
            // Two blocks each.
            rq = q.masked_swap(there(&m.word64), as_set<uint64_t>(v), l);
            break;
          default: rq = q.put_signal_inline(there(&m.word64), payload_of(v), 8, there(&m.signal), signal_op::add, v, l); sum += v;
        }
        check(rq.in_flight(), "a request was not posted");
        if (i == 7) {
          expect_done(q.wait(l.mask, true, rq), "a request of many");
          check(order::load<order::acquire>(&m.word64) == v, "an earlier request was carried out after a later one");
        }
      }
    }
    check(order::load<order::acquire>(&m.signal) == sum, "a signal was lost or doubled");
    posted += 1;
  });
  check(posted == lane_count, "a lane did not come to its end");
  run(1, [&] {
    if (warp::lane() != 0) return;
    // At least one entry goes across the ring's end.
    const send_queue_ref q = st.a.queue(0);
    while (q.index(order::load<order::relaxed>(&q.q->ticket)) != q.blocks() - 1) expect_done(q.wait(q.nop()), "one of a few");
    lane_memory& m = st.mine();
    expect_done(q.wait(q.masked_swap(there(&m.word64), as_set<uint64_t>(77))), "an entry across the ring's end");
    check(order::load<order::acquire>(&m.word64) == 77, "an entry across the ring's end did not do its work");
  });
  st.drain("laps");
  check(st.a.across_end(0) != 0, "no entry went across the ring's end");
  check(st.a.doorbells(0) <= st.a.entries(0), "more doorbells than entries");
}

// Tests that all blocks of a ring can be in use, and no more, and that a held block is not granted again.
void full(const options& base) {
  options o = base;
  o.log_blocks = 4;
  std::printf("  full%s\n", o.collapsed ? " collapsed" : "");
  stand st(o);
  const auto ended_in = [](request rq, wb_kind kind) { return rq.word == status_word(kind); };
  run(1, [&] {
    if (warp::lane() != 0) return;
    const send_queue_ref q = st.a.queue(0);
    lane_memory& m = st.mine();
    order::store<order::release>(&st.a.paused, 1u);
    for (uint32_t i = 0; i + 1 < q.blocks(); ++i) check(q.nop().in_flight(), "a ring that is not full took nothing");
    // One block is left: too few for two.
    st.a.ctl.deadline_ns = impatient;
    check(ended_in(q.masked_swap(there(&m.word64), as_set<uint64_t>(1)), WB_TIMED_OUT), "an entry of two blocks found room for one");
    st.a.ctl.deadline_ns = patient;
    const request last = q.nop();
    check(last.in_flight(), "the last block of a ring was not given out");
    st.a.ctl.deadline_ns = impatient;
    check(ended_in(q.nop(), WB_TIMED_OUT), "a full ring took one more");
    uint64_t old;
    check(q.fetch_add(there(&m.word64), 1, old).kind() == WB_TIMED_OUT, "a full ring took a fetch");
    check(q.wait(last).kind() == WB_TIMED_OUT, "an adapter that does nothing has completed something");
    order::store<order::release>(&st.a.paused, 0u);
    st.a.ctl.deadline_ns = patient;
    expect_done(q.quiet(), "what filled the ring");

    // Before any lane polls.
    const request held = q.nop();
    q.hold(held.block);
    expect_done(q.wait(held), "a request that is held");
    for (uint32_t i = 0; i + 1 < q.blocks(); ++i) expect_done(q.wait(q.nop()), "one after a held one");
    st.a.ctl.deadline_ns = impatient;
    check(ended_in(q.nop(), WB_TIMED_OUT), "a held block was given out");
    st.a.ctl.deadline_ns = patient;
    q.let_go(held.block);
    expect_done(q.wait(q.nop()), "one after a block was let go");
  });
  st.drain("full");

  // A ring that is shorter than a work request.
  options two = base;
  two.log_blocks = 1;
  two.consistency = true;
  stand tiny(two);
  run(1, [&] {
    if (warp::lane() != 0) return;
    const send_queue_ref q = tiny.a.queue(0);
    lane_memory& m = tiny.mine();
    for (uint32_t i = 0; i < 5; ++i) {
      expect_done(q.wait(q.put_signal(there(m.far), here(m.near), 8, there(&m.signal), signal_op::add, 1)), "two blocks of two");
      expect_done(q.wait(q.masked_swap(there(&m.word64), as_set<uint64_t>(i))), "two blocks of two");
      expect_done(q.wait(q.nop()), "one block of two");
      expect_done(q.wait(q.put_signal(there(m.far), here(m.near), 8, there(&m.signal), signal_op::set, i)), "one block and two of two");
      uint64_t before;
      check(q.fetch_masked_swap(there(&m.word64), as_set<uint64_t>(i), before).word == status_word(WB_BAD_ARGUMENT),
            "three blocks of two were promised room");
    }
  });
  tiny.drain("tiny");
}

// Tests a work request that fails. Requests before it are done. Requests behind it have failed for the same reason, for all lanes.
void failing(const options& base, uint32_t at) {
  options o = base;
  o.first_ticket = 0;
  std::printf("  failing: entry %u of ring %u%s\n", at, 1u << o.log_blocks, o.collapsed ? " collapsed" : "");
  stand st(o);
  st.a.faults[0] = fault{at, syndrome_remote_access, 0x88};
  std::atomic<uint32_t> good{0}, bad{0};
  run(warps, [&] {
    const send_queue_ref q = st.a.queue(0);
    lane_memory& m = st.mine();
    const lanes l{warp::full(), true};
    bool lost = false;
    for (uint32_t i = 0; i < at + 8; ++i) {
      const request rq = i % 3 == 2
                             ? q.put_signal_inline(there(&m.word64), payload_of(i + 1), 8, there(&m.signal), signal_op::set, i + 1, l)
                             : q.write_inline(there(&m.word64), payload_of(i + 1), 8, l);
      const outcome e = q.wait(l.mask, true, rq);
      if (e) {
        check(!lost, "a request is done behind one that has failed");
        check(order::load<order::acquire>(&m.word64) == i + 1, "a request is done and its data is not there");
        if (!o.collapsed) check(static_cast<int32_t>(rq.block - order::load<order::acquire>(&q.q->completed)) < 0, "done and not complete");
        good += 1;
      } else {
        const bool cause = e.syndrome() == syndrome_remote_access && e.vendor_syndrome() == 0x88;
        const bool flush = e.syndrome() == syndrome_flushed && e.vendor_syndrome() == flush_vendor;
        check(e.kind() == WB_NETWORK_ERROR && (cause || (flush && o.collapsed)),
              "a request behind a failure ended in " + std::to_string(e.word));
        check(e.word == order::load<order::acquire>(&q.q->failed), "a failure has two causes");
        if (rq.in_flight())
          check(static_cast<int32_t>(rq.end - 1 - order::load<order::relaxed>(&q.q->failed_at)) >= 0, "one before the failure has failed");
        lost = true;
        bad += 1;
      }
      uint64_t old;
      const outcome later = q.fetch_add(there(&m.word64), 1, old, lanes{l.mask, lost});
      if (lost) check(later.word == e.word, "a failed queue pair has fetched something");
      if (warp::any(warp::full(), lost)) break;
    }
    check(q.quiet(warp::full(), true).kind() == WB_NETWORK_ERROR, "a queue pair that has failed is quiet");
  });
  check(bad != 0, "nothing has failed");
  check(at == 1 || good != 0 || lane_count >= at, "nothing was done before the failure");
}

// Tests completions that do not come in time, and then do.
void lost(const options& base) {
  options o = base;
  o.deadline_ns = impatient;
  std::printf("  lost: ring %u%s\n", 1u << o.log_blocks, o.collapsed ? " collapsed" : "");
  stand st(o);
  st.a.faults[0] = fault{3, 0, 0};
  std::atomic<uint32_t> timed_out{0};
  run(warps, [&] {
    const send_queue_ref q = st.a.queue(0);
    lane_memory& m = st.mine();
    const lanes l{warp::full(), true};
    for (uint32_t i = 0; i < 4; ++i) {
      const request rq = q.write_inline(there(&m.word64), payload_of(i), 8, l);
      const outcome e = q.wait(l.mask, true, rq);
      check(e || e.kind() == WB_TIMED_OUT, "a request that was held back ended in " + std::to_string(e.word));
      if (!e) timed_out += 1;
      // The landing place of a fetch that has timed out belongs to no lane. Its block is used again only after it has completed.
      uint64_t old = 0;
      if (i == 3) check(q.fetch_add(there(&m.signal), 1, old, l).kind() == WB_TIMED_OUT, "a fetch that was held back is done");
    }
  });
  check(timed_out != 0, "nothing has timed out");
  order::store<order::release>(&st.a.release, 1u);
  st.drain("lost");
}

// Tests a stop by the host; afterwards the queues work as new.
void stopped(const options& o) {
  std::printf("  stopped\n");
  stand st(o);
  order::store<order::release>(&st.a.paused, 1u);
  std::atomic<uint32_t> begun{0};
  std::thread host([&] {
    while (begun.load() < lane_count) cpu::yield();
    order::store<order::release, order::system>(&st.a.stop_word, 1u);
  });
  run(warps, [&] {
    const send_queue_ref q = st.a.queue(warp::thread_index() % o.queues);
    begun += 1;
    const lanes l{warp::full(), true};
    for (bool over = false; !over;) {
      const request rq = q.nop(l);
      const outcome e = q.wait(l.mask, true, rq);
      check(e.kind() == WB_STOPPED, "a stopped wait ended in " + std::to_string(e.word));
      over = warp::any(warp::full(), !e);
    }
  });
  host.join();
  st.a.stop_word = 0;
  order::store<order::release>(&st.a.paused, 0u);
  st.drain("stopped");
}

// --- polling, by test vectors ------------------------------------------------------------------------------------------

order::quad completion(uint32_t counter, uint32_t op_own, uint32_t syndrome = 0, uint32_t vendor = 0) {
  return order::quad{0, syndrome << 24 | vendor << 16, 0, (counter >> 8 & 0xff) | (counter & 0xff) << 8 | op_own << 24};
}

// Polls once an adapter that no thread runs.
void poll_once(adapter& a) {
  run(1, [&] { a.queue(0).poll(warp::full()); });
}

void vectors() {
  std::printf("  vectors\n");
  // A ring of 256 completions: position, last byte, and true if the entry is new.
  const struct {
    uint32_t at, op_own;
    bool fresh;
  } ring[] = {{0, 0xf1, false},  {0, 0x00, true},    {255, 0x00, true}, {256, 0x00, false}, {256, 0x01, true},
              {511, 0x01, true}, {512, 0x01, false}, {512, 0x00, true}, {0, 0xd0, true}};
  for (const auto& v : ring) {
    options o;
    o.log_blocks = 8;
    o.first_ticket = 0x1fff0;
    adapter a(o);
    wb_send_queue& q = a.queues[0];
    q.ticket = q.tail = o.first_ticket + 8;
    q.head = v.at;
    a.completions(0)[(v.at & 255) * 4 + 3] = completion(0xfff4, v.op_own, v.op_own == 0xd0 ? uint32_t{syndrome_remote_access} : 0u, 0x88);
    poll_once(a);
    const bool wrong = v.op_own >> 4 == cqe_requester_error;
    check(q.head == v.at + v.fresh, "a completion at " + std::to_string(v.at) + ": taken " + std::to_string(q.head - v.at));
    check(q.completed == o.first_ticket + (!v.fresh ? 0 : wrong ? 4 : 5), "a completion at " + std::to_string(v.at) + ": completed");
    check(q.failed == (wrong ? network_error(syndrome_remote_access, 0x88) : 0) && (!wrong || q.failed_at == o.first_ticket + 4),
          "an error completion");
    check(q.head_lock == 0, "the poller's lock is held");
  }
  // Collapsed: blocks complete before, index that is waited for, counter of the entry, and the number of blocks complete then.
  const struct {
    uint32_t log_blocks, before, index, counter, two_blocks, completed;
  } collapsed[] = {{10, 0, 1, 0, 0, 1},
                   {10, 0, 4, 1, 0, 2},
                   {10, 0, 4, 3, 0, 4},
                   {10, 2, 4, 9, 0, 10},
                   {10, 0xfff0, 0xffff, 0xfffe, 0, 0xffff},
                   {10, 0, 7, 5, 1, 7},
                   {10, 0xfff0, 0x10000, 0xfffe, 0, 0xffff},
                   {10, 0xfff0, 0x10000, 0xffff, 0, 0x10000},
                   {10, 0x10000, 0x10001, 0xffff, 0, 0x10000},
                   {10, 0x10000, 0x10001, 0x0000, 0, 0x10001},
                   {10, 0xfff0, 0xffff, 0x0003, 0, 0x10004},
                   {15, 0x18006, 0x1fffe, 0x0005, 0, 0x20006},
                   {10, 0x12300, 0x12345, 0x2300, 0, 0x12301}};
  for (const auto& v : collapsed) {
    options o;
    o.log_blocks = v.log_blocks;
    o.collapsed = true;
    o.first_ticket = v.before;
    adapter a(o);
    wb_send_queue& q = a.queues[0];
    q.ticket = q.tail = v.before + (1u << v.log_blocks);
    poll_once(a);
    check(q.completed == v.before, "an entry that was never written");
    if (v.two_blocks) a.marks(0)[v.counter & ((1u << v.log_blocks) - 1)] = ((v.counter >> v.log_blocks) + 1) << 2 | 1;
    a.completions(0)[3] = completion(v.counter, 0x00);
    for (int i = 0; i < 3; ++i) poll_once(a);
    const std::string name = "collapsed: index " + std::to_string(v.index) + ", counter " + std::to_string(v.counter);
    check(q.completed == v.completed, name + ": completed " + std::to_string(q.completed));
    uint32_t word;
    const bool reached = static_cast<int32_t>(v.completed - v.index) >= 0;
    check(a.queue(0).is_complete(v.index, word) == reached && word == WB_DONE, name + ": settled");
  }
  // The cause of a failure, and flush errors behind it, in one poll or in several.
  for (uint32_t split : {1u, 3u, 5u}) {
    options o;
    o.log_blocks = 4;
    adapter a(o);
    wb_send_queue& q = a.queues[0];
    q.ticket = q.tail = 8;
    for (uint32_t i = 0; i < 8; ++i) {
      if (i == split) poll_once(a);
      const bool cause = i == 3;
      a.completions(0)[i * 4 + 3] =
          i < 3 ? completion(i, 0x00) : completion(i, 0xd0, cause ? syndrome_retry_exceeded : syndrome_flushed, cause ? 0x81u : 0xf9u);
    }
    for (int i = 0; i < 2; ++i) poll_once(a);
    check(q.failed == network_error(syndrome_retry_exceeded, 0x81) && q.failed_at == 3 && q.completed == 3, "the cause of a flush storm");
    uint32_t word;
    check(a.queue(0).is_complete(3, word) && word == WB_DONE && a.queue(0).is_complete(4, word) && word == q.failed,
          "before and behind a failure");
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  options o;
  o.seed = argc > 1 ? static_cast<uint32_t>(std::strtoul(argv[1], nullptr, 0)) : 1;
  if (argc > 2) rounds *= static_cast<uint32_t>(std::strtoul(argv[2], nullptr, 0));
  vectors();
  const struct {
    uint32_t queues, log_blocks, first_ticket;
    bool collapsed, consistency, near;
  } shapes[] = {{1, 2, 0, false, false, false},        {1, 2, 0xffffffe0u, true, false, false},  {1, 3, 0xfff0, false, true, false},
                {2, 4, 0, false, false, true},         {3, 3, 0xffffff00u, false, false, false}, {1, 7, 0, false, false, true},
                {2, 7, 0xffff8000u, true, true, false}};
  for (const auto& s : shapes) {
    // Wide warps of threads are very slow on tiny rings.
    if (warp::width == 32 && s.log_blocks < 4 && s.queues != 3) continue;
    options m = o;
    m.queues = s.queues;
    m.log_blocks = s.log_blocks;
    m.first_ticket = s.first_ticket;
    m.collapsed = s.collapsed;
    m.consistency = s.consistency;
    m.near = s.near;
    mixed(m);
  }
  for (bool collapsed : {false, true}) {
    options m = o;
    m.collapsed = collapsed;
    // All of the 16-bit index space where that is quick, or its end.
    m.first_ticket = warp::width == 1 ? 0 : 0xfe00;
    laps(m, warp::width == 1 ? 70000 : 2000);
    m.first_ticket = 0xffffff00u;
    laps(m, 600);
    m.first_ticket = 0;
    full(m);
    m.log_blocks = 5;
    for (uint32_t at : {1u, 4u, 17u}) failing(m, at);
    m.log_blocks = warp::width == 32 ? 7 : 4;
    lost(m);
    m.queues = 2;
    stopped(m);
  }
  std::printf("send queue stress: width %u, seed %u: ok\n", warp::width, o.seed);
}
