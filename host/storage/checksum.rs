//! XXH64, the 64-bit hash of the xxHash specification 0.1.1 with seed 0: fast enough to keep up with loading, and known to
//! other tools (`xxhsum -H64`).

const P1: u64 = 0x9e37_79b1_85eb_ca87;
const P2: u64 = 0xc2b2_ae3d_27d4_eb4f;
const P3: u64 = 0x1656_67b1_9e37_79f9;
const P4: u64 = 0x85eb_ca77_c2b2_ae63;
const P5: u64 = 0x27d4_eb2f_1656_67c5;
/// Bytes that one round over the four lanes takes.
const STRIPE: usize = 32;

/// Hashes bytes as they come.
#[derive(Clone, Debug)]
pub struct Checksum {
    lanes: [u64; 4],
    tail: [u8; STRIPE],
    tail_bytes: usize,
    total: u64,
}

impl Default for Checksum {
    fn default() -> Self {
        let lanes = [P1.wrapping_add(P2), P2, 0, P1.wrapping_neg()];
        Self { lanes, tail: [0; STRIPE], tail_bytes: 0, total: 0 }
    }
}

fn word64(b: &[u8]) -> u64 {
    b.first_chunk().map_or(0, |w| u64::from_le_bytes(*w))
}

fn round(lane: u64, word: u64) -> u64 {
    lane.wrapping_add(word.wrapping_mul(P2)).rotate_left(31).wrapping_mul(P1)
}

impl Checksum {
    /// The hash of these bytes.
    pub fn of(bytes: &[u8]) -> u64 {
        let mut c = Self::default();
        c.update(bytes);
        c.finish()
    }

    fn stripe(lanes: &mut [u64; 4], stripe: &[u8]) {
        for (lane, word) in lanes.iter_mut().zip(stripe.chunks_exact(8)) {
            *lane = round(*lane, word64(word));
        }
    }

    /// Adds bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        self.total = self.total.wrapping_add(bytes.len() as u64);
        if self.tail_bytes > 0 {
            let n = bytes.len().min(STRIPE - self.tail_bytes);
            self.tail[self.tail_bytes..][..n].copy_from_slice(&bytes[..n]);
            self.tail_bytes += n;
            bytes = &bytes[n..];
            if self.tail_bytes < STRIPE {
                return;
            }
            let tail = self.tail;
            Self::stripe(&mut self.lanes, &tail);
            self.tail_bytes = 0;
        }
        let stripes = bytes.chunks_exact(STRIPE);
        let rest = stripes.remainder();
        let mut lanes = self.lanes;
        stripes.for_each(|s| Self::stripe(&mut lanes, s));
        self.lanes = lanes;
        self.tail[..rest.len()].copy_from_slice(rest);
        self.tail_bytes = rest.len();
    }

    /// The hash of all bytes so far.
    pub fn finish(&self) -> u64 {
        let [a, b, c, d] = self.lanes;
        let mut h = if self.total < STRIPE as u64 {
            P5
        } else {
            let mixed = a
                .rotate_left(1)
                .wrapping_add(b.rotate_left(7))
                .wrapping_add(c.rotate_left(12))
                .wrapping_add(d.rotate_left(18));
            self.lanes.iter().fold(mixed, |h, lane| (h ^ round(0, *lane)).wrapping_mul(P1).wrapping_add(P4))
        };
        h = h.wrapping_add(self.total);
        let mut rest = &self.tail[..self.tail_bytes];
        while rest.len() >= 8 {
            h = (h ^ round(0, word64(rest))).rotate_left(27).wrapping_mul(P1).wrapping_add(P4);
            rest = &rest[8..];
        }
        if let Some(w) = rest.first_chunk() {
            h = (h ^ u64::from(u32::from_le_bytes(*w)).wrapping_mul(P1))
                .rotate_left(23)
                .wrapping_mul(P2)
                .wrapping_add(P3);
            rest = &rest[4..];
        }
        for b in rest {
            h = (h ^ u64::from(*b).wrapping_mul(P5)).rotate_left(11).wrapping_mul(P1);
        }
        h = (h ^ (h >> 33)).wrapping_mul(P2);
        h = (h ^ (h >> 29)).wrapping_mul(P3);
        h ^ (h >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn published_values() {
        assert_eq!(Checksum::of(b""), 0xef46_db37_51d8_e999);
        assert_eq!(Checksum::of(b"a"), 0xd24e_c4f1_a98c_6e5b);
        assert_eq!(Checksum::of(b"abc"), 0x44bc_2cf5_ad77_0999);
        assert_eq!(Checksum::of(b"Nobody inspects the spammish repetition"), 0xfbce_a83c_8a37_8bf1);
    }

    proptest! {
        #[test]
        fn pieces_give_what_the_whole_gives(bytes: Vec<u8>, cuts: Vec<u16>) {
            let mut c = Checksum::default();
            let mut at = 0;
            for cut in cuts {
                let n = usize::from(cut % 70).min(bytes.len() - at);
                c.update(&bytes[at..at + n]);
                at += n;
            }
            c.update(&bytes[at..]);
            prop_assert_eq!(c.finish(), Checksum::of(&bytes));
        }
    }
}
