//! Mistakes in copies of the device headers, which explorations must find. In the copies `MUTATED("NAME")` is true if a
//! run asks for that mistake.

/// A change of a header's text. The old text must occur there exactly once.
pub struct Edit {
    pub header: &'static str,
    pub old: &'static str,
    pub new: &'static str,
}

impl Edit {
    pub fn applied_to(&self, text: &str) -> String {
        let count = text.matches(self.old).count();
        assert_eq!(count, 1, "what a test changes stands {count} times in {}: {}", self.header, self.old);
        text.replacen(self.old, self.new, 1)
    }
}

/// A mistake, the scene that shows the mistake, and a part of the message of the exploration.
pub struct Mutation {
    pub name: &'static str,
    pub scene: &'static str,
    pub found: &'static str,
    pub edits: &'static [Edit],
}

const fn ring(old: &'static str, new: &'static str) -> Edit {
    Edit { header: "ring.cuh", old, new }
}
const fn command_ring(old: &'static str, new: &'static str) -> Edit {
    Edit { header: "command_ring.cuh", old, new }
}
const fn nvme(old: &'static str, new: &'static str) -> Edit {
    Edit { header: "nvme.cuh", old, new }
}
const fn express(old: &'static str, new: &'static str) -> Edit {
    Edit { header: "express.cuh", old, new }
}
const fn tags(old: &'static str, new: &'static str) -> Edit {
    Edit { header: "tags.cuh", old, new }
}
const fn frames(old: &'static str, new: &'static str) -> Edit {
    Edit { header: "frames.cuh", old, new }
}
const fn cache(old: &'static str, new: &'static str) -> Edit {
    Edit { header: "cache.cuh", old, new }
}
const fn send_queue(old: &'static str, new: &'static str) -> Edit {
    Edit { header: "mlx5/queue.cuh", old, new }
}
const fn post(old: &'static str, new: &'static str) -> Edit {
    Edit { header: "mlx5/post.cuh", old, new }
}
const fn array(old: &'static str, new: &'static str) -> Edit {
    Edit { header: "array.cuh", old, new }
}

/// Mistakes of the ring and the queue pair.
pub const QUEUE: &[Mutation] = &[
    Mutation {
        name: "an express lane takes its turn too early",
        scene: "depth 4, two in a hurry",
        found: "can never be over",
        edits: &[express(
            "if (head != uint64_t{t} << 32 ||",
            "if ((head != uint64_t{t} << 32 && !MUTATED(\"an express lane takes its turn too early\")) ||",
        )],
    },
    Mutation {
        name: "an express lane keeps the head",
        scene: "depth 4, in a hurry, the clock",
        found: "can never be over",
        edits: &[express(
            "      order::store<order::release>(head_, head);\n      doorbells",
            "      if (!MUTATED(\"an express lane keeps the head\")) order::store<order::release>(head_, head);\n      doorbells",
        )],
    },
    Mutation {
        name: "an express lane forgets those behind it",
        scene: "depth 4, two in a hurry",
        found: "can never be over",
        edits: &[ring(
            "if (static_cast<uint32_t>(held) > 1 || behind)",
            "if ((static_cast<uint32_t>(held) > 1 || behind) && !MUTATED(\"an express lane forgets those behind it\"))",
        )],
    },
    Mutation {
        name: "publishes without waiting for the mark",
        scene: "depth 4, two submitters of two",
        found: "which is not written",
        edits: &[command_ring(
            "WB_FN bool is_marked(uint32_t ticket) const { return order::load<order::acquire>(mark(ticket)) == lap(ticket) + 1; }",
            "WB_FN bool is_marked(uint32_t ticket) const {
               if (MUTATED(\"publishes without waiting for the mark\")) return static_cast<int32_t>(ticket - order::load<order::relaxed>(&q->ticket)) < 0;
               return order::load<order::acquire>(mark(ticket)) == lap(ticket) + 1;
             }",
        )],
    },
    Mutation {
        name: "rings before the entry is written",
        scene: "depth 2, two submitters of two",
        found: "which is not written",
        edits: &[nvme(
            "    write(got, t);\n    doorbells += publish_run(mask, g, got, t);",
            "    const bool late = MUTATED(\"rings before the entry is written\");
             if (!late) write(got, t);
             doorbells += publish_run(mask, g, got, t);
             if (late) write(got, t);",
        )],
    },
    Mutation {
        name: "marks without a release",
        scene: "depth 4, late stores",
        found: "can never be over",
        edits: &[command_ring(
            "if (got) order::store<order::release>(mark(ticket), lap(ticket) + 1);",
            "if (got && MUTATED(\"marks without a release\")) order::store<order::relaxed>(mark(ticket), lap(ticket) + 1);
             else if (got) order::store<order::release>(mark(ticket), lap(ticket) + 1);",
        )],
    },
    Mutation {
        name: "uses a slot again before its completion is consumed",
        scene: "depth 2, two submitters of two",
        found: "a command brought another one's data",
        edits: &[command_ring(
            "& ~(slot::completed | slot::failed)) == 0);",
            "& ~(slot::completed | slot::failed)) == 0 ||
               (MUTATED(\"uses a slot again before its completion is consumed\") && r.has_completed(w, t - r.q->depth)));",
        )],
    },
    Mutation {
        name: "fills the ring",
        scene: "depth 2, two submitters of two",
        found: "a command brought another one's data",
        edits: &[command_ring("    --to;\n", "    if (!MUTATED(\"fills the ring\")) --to;\n")],
    },
    Mutation {
        name: "does not look again after others have tried",
        scene: "depth 4, tokens",
        found: "can never be over",
        edits: &[ring(
            "more = static_cast<uint32_t>(held) > 1 && r.is_marked(tail);",
            "more = static_cast<uint32_t>(held) > 1 && !MUTATED(\"does not look again after others have tried\") && r.is_marked(tail);",
        )],
    },
    Mutation {
        name: "rings without looking at the next mark",
        scene: "depth 4, two submitters of two",
        found: "can never be over",
        edits: &[ring(
            "more = static_cast<uint32_t>(held) > 1 || behind;",
            "more = static_cast<uint32_t>(held) > 1 || (behind && !MUTATED(\"rings without looking at the next mark\"));",
        )],
    },
    Mutation {
        name: "gives credit to a word that is being put right",
        scene: "depth 2, two submitters of two",
        found: "can never be over",
        edits: &[ring(
            "tries && static_cast<int32_t>(seen) >= 0; --tries",
            "tries && (static_cast<int32_t>(seen) >= 0 || MUTATED(\"gives credit to a word that is being put right\")); --tries",
        )],
    },
    Mutation {
        name: "forgets what is spare",
        scene: "depth 2, two submitters of two",
        found: "can never be over",
        edits: &[ring(
            "had += order::exchange<order::acq_rel>(&r.q->spare, 0u);",
            "const uint32_t spare = order::exchange<order::acq_rel>(&r.q->spare, 0u);
             if (!MUTATED(\"forgets what is spare\")) had += spare;",
        )],
    },
    Mutation {
        name: "takes tickets without credit",
        scene: "depth 2, two submitters of two",
        found: "can never be over",
        edits: &[ring(
            "uint32_t n = had < wanted ? had : wanted;",
            "uint32_t n = had < wanted && !MUTATED(\"takes tickets without credit\") ? had : wanted;",
        )],
    },
    Mutation {
        name: "does not free the slot of a command that was given up",
        scene: "depth 2, the clock",
        found: "can never be over",
        edits: &[nvme(
            "if ((before & slot::states) == slot::claimed) {",
            "if ((before & slot::states) == slot::claimed && !MUTATED(\"does not free the slot of a command that was given up\")) {",
        )],
    },
    Mutation {
        name: "finishes a command without claiming it",
        scene: "depth 2, tokens",
        found: "a token's data is not there",
        edits: &[nvme(
            "  WB_FN bool claim(uint32_t ticket, uint32_t w) const {\n",
            "  WB_FN bool claim(uint32_t ticket, uint32_t w) const {
             if (MUTATED(\"finishes a command without claiming it\")) return true;\n",
        )],
    },
    Mutation {
        name: "frees the slot before its data is taken",
        scene: "depth 2, tokens",
        found: "a token's data is not there",
        edits: &[
            nvme(
                "    land_claimed<copying::many>(mask, mine, ticket, w);\n    status s;\n",
                "    const bool late = MUTATED(\"frees the slot before its data is taken\");
                 if (!late) land_claimed<copying::many>(mask, mine, ticket, w);\n    status s;\n",
            ),
            nvme(
                "      free_claimed(ticket, w, false);\n    }\n    return s;",
                "      free_claimed(ticket, w, false);\n    }\n    if (late) land_claimed<copying::many>(mask, mine, ticket, w);\n    return s;",
            ),
        ],
    },
];

/// Mistakes of the page cache.
pub const CACHE: &[Mutation] = &[
    Mutation {
        name: "ends the read of the first page alone",
        scene: "two pages at once",
        found: "can never be over",
        edits: &[tags(
            "for (uint32_t i = 0; i <= after; ++i) end_read(",
            "const uint32_t more = MUTATED(\"ends the read of the first page alone\") ? 0 : after;
             for (uint32_t i = 0; i <= more; ++i) end_read(",
        )],
    },
    Mutation {
        name: "takes half of a failed read for an error",
        scene: "two pages at once, a failure",
        found: "a page is poison",
        edits: &[tags(
            "return context >> frames_at != 0; }",
            "return context >> frames_at != 0 && !MUTATED(\"takes half of a failed read for an error\"); }",
        )],
    },
    Mutation {
        name: "lets go of a page before it is used",
        scene: "one frame, readers and writers",
        found: "a frame is filled while thread 1 has its page pinned",
        edits: &[
            cache(
                "    if (ended && w.status == WB_DONE) use(",
                "    const bool early = MUTATED(\"lets go of a page before it is used\");
                 if (early && ended && w.status == WB_DONE) frames::unpin(*cache, frames::entry(*cache, set, w.way), warp::count(w.group));
                 if (ended && w.status == WB_DONE) use(",
            ),
            cache("      if (w.status == WB_DONE) frames::unpin(", "      if (w.status == WB_DONE && !early) frames::unpin("),
        ],
    },
    Mutation {
        name: "evicts a pinned page",
        scene: "one frame, dropped",
        found: "a pinned page is not what was stored last",
        edits: &[frames(
            "const bool pinned = order::fetch_add<order::acq_rel>(pins(c, entry), 0u) != 0;",
            "const bool pinned = order::fetch_add<order::acq_rel>(pins(c, entry), 0u) != 0 && !MUTATED(\"evicts a pinned page\");",
        )],
    },
    Mutation {
        name: "makes a page valid before it is filled",
        scene: "one frame, two readers",
        found: "a pinned page has the bytes of another one",
        edits: &[frames(
            "(has_checksums(c) ? WB_TAG_UNCHECKED : 0));",
            "(has_checksums(c) ? WB_TAG_UNCHECKED : 0) | (MUTATED(\"makes a page valid before it is filled\") ? WB_TAG_VALID : 0));",
        )],
    },
    Mutation {
        name: "loses a change that crosses a claim",
        scene: "one frame, dropped",
        found: "a pinned page is not what was stored last",
        edits: &[frames(
            "if (pinned || now != claimed) {",
            "if (pinned || (now != claimed && !MUTATED(\"loses a change that crosses a claim\"))) {",
        )],
    },
    Mutation {
        name: "takes a dirty frame",
        scene: "one frame, readers and writers",
        found: "a pinned page is not what was stored last",
        edits: &[frames(
            "    if (t & WB_TAG_DIRTY) {\n",
            "    if ((t & WB_TAG_DIRTY) && !MUTATED(\"takes a dirty frame\")) {\n",
        )],
    },
    Mutation {
        name: "writes a page back beside who changes it",
        scene: "one frame, flushed",
        found: "a change was not written back",
        edits: &[frames(
            "  if (order::fetch_add<order::acq_rel>(pins(c, entry), 0u) != 0) {\n",
            "  if (order::fetch_add<order::acq_rel>(pins(c, entry), 0u) != 0 && !MUTATED(\"writes a page back beside who changes it\")) {\n",
        )],
    },
    Mutation {
        name: "marks a page dirty after it has changed",
        scene: "one frame, readers and writers",
        found: "a pinned page is not what was stored last",
        edits: &[
            cache(
                "    if (w.writes) mark(c, at, WB_TAG_DIRTY);",
                "    if (w.writes && !MUTATED(\"marks a page dirty after it has changed\")) mark(c, at, WB_TAG_DIRTY);",
            ),
            cache(
                "      frames::count_accesses(*cache, w, warp::count(w.group));\n    }\n    waiting",
                "      frames::count_accesses(*cache, w, warp::count(w.group));
                   if (MUTATED(\"marks a page dirty after it has changed\") && w.writes && w.status == WB_DONE) {
                     frames::mark(*cache, frames::entry(*cache, set, w.way), WB_TAG_DIRTY);
                   }
                 }
                 waiting",
            ),
        ],
    },
    Mutation {
        name: "chooses a frame without the lock",
        scene: "two frames",
        found: "a pinned page",
        edits: &[frames(
            "  return order::load<order::relaxed>(lock) == 0 &&",
            "  if (MUTATED(\"chooses a frame without the lock\")) return true;
             return order::load<order::relaxed>(lock) == 0 &&",
        )],
    },
    Mutation {
        name: "does not look again under the lock",
        scene: "two frames, one page",
        found: "a pinned page is not what was stored last",
        edits: &[cache(
            "      if (find(c, set, w.page, t) == none) {\n        way = choose(",
            "      if (find(c, set, w.page, t) == none || MUTATED(\"does not look again under the lock\")) {\n        way = choose(",
        )],
    },
    Mutation {
        name: "keeps the version",
        scene: "one frame, loads",
        found: "a load brings the bytes of another page",
        edits: &[frames(
            "uint64_t claimed = tags::advance(t, 0);",
            "uint64_t claimed = MUTATED(\"keeps the version\") ? t & ~tags::state_mask : tags::advance(t, 0);",
        )],
    },
    Mutation {
        name: "loads without looking at the tag again",
        scene: "one frame, loads",
        found: "a load brings the bytes of another page",
        edits: &[array(
            "    if (!tags::same(t, order::load<order::relaxed>(word))) return false;\n    if (!(t & WB_TAG_REFERENCED)) frames::touch(word, t);\n    ++hits_;",
            "    if (!MUTATED(\"loads without looking at the tag again\") && !tags::same(t, order::load<order::relaxed>(word))) return false;
                 if (!(t & WB_TAG_REFERENCED)) frames::touch(word, t);
                 ++hits_;",
        )],
    },
    Mutation {
        name: "settles a frame before its data has landed",
        scene: "one frame, two readers",
        found: "a pinned page has the bytes of another one",
        edits: &[nvme(
            "      land_claimed<copying::many>(mask, claimed, ticket, w);\n      if (claimed) free_claimed(ticket, w, false);",
            "      const bool late = MUTATED(\"settles a frame before its data has landed\");
                   if (!late) land_claimed<copying::many>(mask, claimed, ticket, w);
                   if (claimed) free_claimed(ticket, w, false);
                   if (late) land_claimed<copying::many>(mask, claimed, ticket, w);",
        )],
    },
    Mutation {
        name: "takes a failed read for a good one",
        scene: "one frame, a failure",
        found: "a pinned page has the bytes of another one",
        edits: &[tags(
            "order::exchange<order::acq_rel>(tag, page | (good ? read",
            "order::exchange<order::acq_rel>(tag, page | (good || MUTATED(\"takes a failed read for a good one\") ? read",
        )],
    },
    Mutation {
        name: "keeps the pin of a failed page",
        scene: "one frame, a failure",
        found: "can never be over",
        edits: &[cache(
            "  } else if (t & WB_TAG_FAILED) {\n    unpin(c, at, lanes);",
            "  } else if (t & WB_TAG_FAILED) {\n    if (!MUTATED(\"keeps the pin of a failed page\")) unpin(c, at, lanes);",
        )],
    },
    Mutation {
        name: "keeps the pin of a page that came too late",
        scene: "one frame, the clock",
        found: "can never be over",
        edits: &[cache(
            "  if (w.way != none) unpin(c, entry(c, set_of(c, w.page), w.way), warp::count(w.group));\n",
            "  if (w.way != none && !MUTATED(\"keeps the pin of a page that came too late\")) {
               unpin(c, entry(c, set_of(c, w.page), w.way), warp::count(w.group));
             }\n",
        )],
    },
];

/// Mistakes of the send queue.
pub const SEND_QUEUE: &[Mutation] = &[
    Mutation {
        name: "takes half of a chain",
        scene: "chains",
        found: "can never be over",
        edits: &[ring("    n -= n % unit;\n", "    if (!MUTATED(\"takes half of a chain\")) n -= n % unit;\n")],
    },
    Mutation {
        name: "rings before the record is written",
        scene: "single blocks",
        found: "the doorbell and its record differ",
        edits: &[send_queue(
            "    set_record(tail);\n    order::mmio_store(bell, doorbells);\n",
            "    if (MUTATED(\"rings before the record is written\")) order::mmio_store(bell, doorbells);
                 set_record(tail);\n    order::mmio_store(bell, doorbells);\n",
        )],
    },
    Mutation {
        name: "uses a held block again",
        scene: "fetches",
        found: "a fetch takes what is not its own",
        edits: &[send_queue(
            "> 0 && held[j] == 0);",
            "> 0 && (held[j] == 0 || MUTATED(\"uses a held block again\")));",
        )],
    },
    Mutation {
        name: "a batch without a completion",
        scene: "batches",
        found: "can never be over",
        edits: &[post(
            "i + 1 == n ? signalled",
            "i + 1 == n && !MUTATED(\"a batch without a completion\") ? signalled",
        )],
    },
    Mutation {
        name: "forgets the second block of an entry",
        scene: "a ring of two blocks",
        found: "can never be over",
        edits: &[send_queue(
            "told = ended_as(p.completed + 1, 0);",
            "told = ended_as(p.completed + (MUTATED(\"forgets the second block of an entry\") ? 0 : 1), 0);",
        )],
    },
];
