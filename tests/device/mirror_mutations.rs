//! Mistakes of the copies of a volume, which explorations must find (`mutations.rs`).

use super::mutations::{Edit, Mutation};

const fn volume(old: &'static str, new: &'static str) -> Edit {
    Edit { header: "volume.cuh", old, new }
}
const fn transfers(old: &'static str, new: &'static str) -> Edit {
    Edit { header: "transfers.cuh", old, new }
}
const fn mirrors(old: &'static str, new: &'static str) -> Edit {
    Edit { header: "mirrors.cuh", old, new }
}

/// Mistakes of the copies.
pub const MIRRORS: &[Mutation] = &[
    Mutation {
        name: "acknowledges a write that a copy in use has failed",
        scene: "two copies, a failure",
        found: "a copy in use lacks a write that was acknowledged",
        edits: &[mirrors(
            "    if (!drop(device)) return word;\n",
            "    if (MUTATED(\"acknowledges a write that a copy in use has failed\")) break;
                 if (!drop(device)) return word;\n",
        )],
    },
    Mutation {
        name: "does not record that a copy has missed a write",
        scene: "two copies, a failure",
        found: "is not recorded as such",
        edits: &[mirrors(
            "return word;\n    order::store<order::relaxed>(&v_->device[device].missed, 1u);",
            "return word;
                 if (!MUTATED(\"does not record that a copy has missed a write\")) order::store<order::relaxed>(&v_->device[device].missed, 1u);",
        )],
    },
    Mutation {
        name: "does not record a write past a copy that is out of use",
        scene: "two copies, the clock",
        found: "is not recorded as such",
        edits: &[mirrors(
            "if (wants && !goes) order::store",
            "if (wants && !goes && !MUTATED(\"does not record a write past a copy that is out of use\")) order::store",
        )],
    },
    Mutation {
        name: "leaves it to another thread to take a copy out of use",
        scene: "two copies, failures",
        found: "a copy in use lacks a write that was acknowledged",
        edits: &[volume(
            "      seen = was == seen ? left : was;\n    }\n",
            "      seen = was == seen ? left : was;
                   if (MUTATED(\"leaves it to another thread to take a copy out of use\") && was == seen + (1u << device)) {
                     order::store<order::release>(&v_->device[device].max_blocks, 0u);
                   }
                 }
                 if (MUTATED(\"leaves it to another thread to take a copy out of use\")) return true;\n",
        )],
    },
    Mutation {
        name: "takes the last copy out of use",
        scene: "two copies, one has left",
        found: "the last copy was taken out of use",
        edits: &[volume(
            "if (!is_any_used(left)) return false;",
            "if (MUTATED(\"takes the last copy out of use\") ? left == 0 : !is_any_used(left)) return false;",
        )],
    },
    Mutation {
        name: "takes copies out of use although others keep the write from ending",
        scene: "three copies, a stop",
        found: "a copy in use lacks a write that was acknowledged",
        edits: &[mirrors(
            "if (word != WB_DONE && !is_of_device(word)) continue;",
            "if (word != WB_DONE && !is_of_device(word) &&
                   !MUTATED(\"takes copies out of use although others keep the write from ending\")) continue;",
        )],
    },
    Mutation {
        name: "acknowledges a write that no copy has",
        scene: "two copies, the bus, writers, a failure",
        found: "a write is acknowledged that no copy has",
        edits: &[mirrors(
            "if (wants && !taken && word == WB_DONE) return",
            "if (wants && !taken && word == WB_DONE && !MUTATED(\"acknowledges a write that no copy has\")) return",
        )],
    },
    Mutation {
        name: "reads from no copy",
        scene: "two copies, the bus, a failure",
        found: "a command has 65536 blocks",
        edits: &[transfers("if (room == 0) {", "if (room == 0 && !MUTATED(\"reads from no copy\")) {")],
    },
    Mutation {
        name: "flushes no copy",
        scene: "two copies, the bus, the clock, flushed",
        found: "a write that was flushed is durable on no copy",
        edits: &[transfers(
            "if (leader && !is_any_used(~0u)) s",
            "if (leader && !is_any_used(~0u) && !MUTATED(\"flushes no copy\")) s",
        )],
    },
    Mutation {
        name: "keeps a copy in use that has failed a flush",
        scene: "two copies, flushed",
        found: "a write that was flushed is not durable on a copy in use",
        edits: &[transfers(
            "is_of_device(one.word) && drop(d)) {",
            "is_of_device(one.word) && (MUTATED(\"keeps a copy in use that has failed a flush\") || drop(d))) {",
        )],
    },
    Mutation {
        name: "reads a copy that is out of use",
        scene: "two copies, the clock",
        found: "a read returns data that a write had replaced before the read began",
        edits: &[volume(
            "    turn = 0;\n    place at = locate(block);\n",
            "    turn = 0;
                 place at = locate(block);
                 if (MUTATED(\"reads a copy that is out of use\")) at.room = 1;\n",
        )],
    },
    Mutation {
        name: "repeats a read on a copy that is out of use",
        scene: "two copies, failures",
        found: "a read returns data that a write had replaced before the read began",
        edits: &[mirrors(
            "while (i < devices && v.locate",
            "while (i < devices && !MUTATED(\"repeats a read on a copy that is out of use\") && v.locate",
        )],
    },
    Mutation {
        name: "does not wait until a copy has left the bus",
        scene: "two copies, direct, the clock",
        found: "a copy writes to the buffer of a read that has ended",
        edits: &[volume(
            "    if (queue_on(device).q->bounce != 0) return true;\n    deadline",
            "    if (queue_on(device).q->bounce != 0 || MUTATED(\"does not wait until a copy has left the bus\")) return true;\n    deadline",
        )],
    },
    Mutation {
        name: "forgets which blocks to repair",
        scene: "two copies, tokens",
        found: "a block that a copy could not read is not entered for repair",
        edits: &[mirrors(
            "for (; damaged; damaged",
            "for (; damaged && !MUTATED(\"forgets which blocks to repair\"); damaged",
        )],
    },
    Mutation {
        name: "writes data before the mark is flushed",
        scene: "two copies, the mark",
        found: "data is written to a copy before the mark is durable there",
        edits: &[mirrors(
            "    if (v.room_on(d) == 0) continue;\n    x = io",
            "    if (v.room_on(d) == 0 || MUTATED(\"writes data before the mark is flushed\")) continue;\n    x = io",
        )],
    },
    Mutation {
        name: "lets others write before the mark is flushed",
        scene: "two copies, the mark",
        found: "data is written to a copy before the mark is durable there",
        edits: &[mirrors(
            "  uint32_t ended = WB_DONE;\n  for (uint32_t d = 0;",
            "  if (MUTATED(\"lets others write before the mark is flushed\")) order::store<order::release>(&g->mark_pending, 0u);
               uint32_t ended = WB_DONE;\n  for (uint32_t d = 0;",
        )],
    },
    Mutation {
        name: "does not write where a copy could not be marked",
        scene: "two copies, the mark",
        found: "an operation failed although a copy did nothing wrong",
        edits: &[mirrors(
            "is_of_device(one) && v.drop(d)) order",
            "is_of_device(one) && !MUTATED(\"does not write where a copy could not be marked\") && v.drop(d)) order",
        )],
    },
];
