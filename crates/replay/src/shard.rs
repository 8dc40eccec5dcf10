//! A part of the replay with its own slots and priorities.
//!
//! A shard is a ring: it numbers its sequences as they come, puts number `n` into slot `n % capacity`, and evicts the
//! oldest first. Inserting, drawing and setting a priority cost one walk through the [`SumTree`]: O(log capacity).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rand::{Rng, RngExt};

use crate::accounting::Accounting;
use crate::sequence::Sequence;
use crate::sum_tree::SumTree;

/// Names one sequence of the replay, even after its eviction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key {
    /// The shard.
    pub shard: u32,
    /// Its slot there, which later sequences reuse.
    pub slot: u32,
    /// Its number in the shard.
    pub generation: u64,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sequence {} of shard {} (slot {})", self.generation, self.shard, self.slot)
    }
}

/// A drawn sequence.
#[derive(Debug)]
pub(crate) struct Drawn {
    pub(crate) sequence: Arc<Sequence>,
    pub(crate) key: Key,
    /// Its sampling probability.
    pub(crate) probability: f64,
    /// Sequences inserted into the shard since.
    pub(crate) age: u64,
}

/// Sequences `oldest..next`, at most as many as there are slots.
#[derive(Debug)]
pub(crate) struct Shard {
    index: u32,
    slots: Vec<Option<Arc<Sequence>>>,
    tree: SumTree,
    /// Number of the oldest sequence held.
    oldest: u64,
    /// Number of the next sequence.
    next: u64,
    memory_limit: u64,
    priority_exponent: f64,
    held: Accounting,
}

impl Shard {
    pub(crate) fn new(index: usize, capacity: usize, memory_limit: u64, priority_exponent: f64) -> Self {
        Self {
            index: index as u32,
            slots: vec![None; capacity],
            tree: SumTree::new(capacity),
            oldest: 0,
            next: 0,
            memory_limit,
            priority_exponent,
            held: Accounting { index_bytes: Self::index_bytes(capacity), ..Accounting::default() },
        }
    }

    /// Sets the number of the next sequence of an empty shard.
    pub(crate) fn starting_at(mut self, number: u64) -> Self {
        (self.oldest, self.next) = (number, number);
        self
    }

    /// Bytes of the slots and the tree.
    pub(crate) fn index_bytes(capacity: usize) -> u64 {
        (capacity * size_of::<Option<Arc<Sequence>>>()) as u64 + SumTree::bytes(capacity)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.oldest == self.next
    }

    pub(crate) fn len(&self) -> u64 {
        self.next - self.oldest
    }

    /// Sequences inserted so far.
    pub(crate) fn inserted(&self) -> u64 {
        self.next
    }

    pub(crate) fn accounting(&self) -> Accounting {
        Accounting { sequences: self.len(), inserted: self.next, ..self.held }
    }

    /// Adds a sequence with the greatest priority held, and evicts the oldest until it fits.
    pub(crate) fn insert(&mut self, sequence: Arc<Sequence>) {
        let greatest = self.tree.max();
        self.insert_weighted(sequence, if greatest > 0.0 { greatest } else { 1.0 });
    }

    /// Adds a sequence with this weight: its priority to the power of the exponent.
    pub(crate) fn insert_weighted(&mut self, sequence: Arc<Sequence>, weight: f64) {
        if self.len() == self.slots.len() as u64 {
            self.evict_oldest();
        }
        let slot = self.slot(self.next);
        self.account(&sequence, true);
        self.tree.set(slot, weight);
        self.slots[slot] = Some(sequence);
        self.next += 1;
        while self.held.bytes() > self.memory_limit && self.len() > 1 {
            self.evict_oldest();
        }
    }

    /// Draws one sequence in proportion to its weight; `None` if the shard is empty.
    pub(crate) fn draw(&self, rng: &mut impl Rng) -> Option<Drawn> {
        let point: f64 = rng.random();
        let total = self.tree.total();
        let (slot, probability) = if total > 0.0 {
            let slot = self.tree.find(point * total);
            (slot, self.tree.get(slot) / total)
        } else {
            // All priorities are zero, hence equal.
            let number = self.oldest + (point * self.len() as f64) as u64;
            (self.slot(number), 1.0 / self.len() as f64)
        };
        let sequence = Arc::clone(self.slots.get(slot)?.as_ref()?);
        let number = self.number(slot);
        let key = Key { shard: self.index, slot: slot as u32, generation: number };
        Some(Drawn { sequence, key, probability, age: self.next - 1 - number })
    }

    /// The sequence that came `age` sequences before the newest, or the oldest.
    ///
    /// Its probability counts as that of uniform sampling. `None` if the shard is empty.
    pub(crate) fn recent(&self, age: u64) -> Option<Drawn> {
        let age = age.min(self.len().checked_sub(1)?);
        let number = self.next - 1 - age;
        let slot = self.slot(number);
        let sequence = Arc::clone(self.slots[slot].as_ref()?);
        let key = Key { shard: self.index, slot: slot as u32, generation: number };
        Some(Drawn { sequence, key, probability: 1.0 / self.len() as f64, age })
    }

    /// Returns whether the key names a sequence that this shard holds or held.
    pub(crate) fn issued(&self, key: Key) -> bool {
        key.generation < self.next && key.slot as usize == self.slot(key.generation)
    }

    /// Sets a priority, which is finite and not negative; returns false if the sequence was evicted.
    pub(crate) fn set_priority(&mut self, key: Key, priority: f32) -> bool {
        let held = self.issued(key) && key.generation >= self.oldest;
        if held {
            self.tree.set(key.slot as usize, f64::from(priority).powf(self.priority_exponent));
        }
        held
    }

    /// Returns all sequences with their weights, oldest first.
    pub(crate) fn held(&self) -> impl Iterator<Item = (&Arc<Sequence>, f64)> {
        (self.oldest..self.next).filter_map(|number| {
            let slot = self.slot(number);
            Some((self.slots[slot].as_ref()?, self.tree.get(slot)))
        })
    }

    fn slot(&self, number: u64) -> usize {
        (number % self.slots.len() as u64) as usize
    }

    /// Number of the sequence in an occupied slot.
    fn number(&self, slot: usize) -> u64 {
        let capacity = self.slots.len() as u64;
        let behind = (self.slot(self.next) as u64 + capacity - slot as u64 - 1) % capacity;
        self.next - 1 - behind
    }

    fn evict_oldest(&mut self) {
        let slot = self.slot(self.oldest);
        self.tree.set(slot, 0.0);
        if let Some(sequence) = self.slots[slot].take() {
            self.account(&sequence, false);
        }
        self.oldest += 1;
    }

    /// Counts the bytes of a sequence that comes or goes, those of a chunk with its first and last sequence.
    fn account(&mut self, sequence: &Sequence, comes: bool) {
        let count = |total: &mut u64, n: u64| *total = if comes { *total + n } else { *total - n };
        count(&mut self.held.sequence_bytes, sequence.own_bytes());
        for chunk in &sequence.chunks {
            let others = if comes {
                chunk.uses.fetch_add(1, Ordering::Relaxed)
            } else {
                chunk.uses.fetch_sub(1, Ordering::Relaxed) - 1
            };
            if others == 0 {
                count(&mut self.held.steps, u64::from(chunk.steps));
                count(&mut self.held.frame_bytes, chunk.frames.len() as u64);
                count(&mut self.held.step_bytes, chunk.bytes_besides_frames());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::Chunk;
    use crate::columns::OwnedStep;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn chunk(bytes: usize) -> Arc<Chunk> {
        let (frames, columns) = (vec![0; bytes].into(), vec![0; 10].into());
        Arc::new(Chunk { steps: 4, streams: [0; 4], frames, columns, uses: Default::default() })
    }

    fn sequence(chunks: &[&Arc<Chunk>]) -> Arc<Sequence> {
        Arc::new(Sequence {
            actor: 0,
            policy: 0,
            parameter_version: 0,
            before: OwnedStep::default(),
            state: [].into(),
            length: 4,
            chunks: chunks.iter().map(|&chunk| Arc::clone(chunk)).collect(),
        })
    }

    fn key(slot: u32, generation: u64) -> Key {
        Key { shard: 0, slot, generation }
    }

    #[test]
    fn evicts_the_oldest_and_drops_chunks_with_their_last_sequence() {
        let mut shard = Shard::new(0, 2, u64::MAX, 1.0);
        let chunks: Vec<_> = (0..4).map(|_| chunk(100)).collect();
        shard.insert(sequence(&[&chunks[0], &chunks[1]]));
        shard.insert(sequence(&[&chunks[1], &chunks[2]]));
        assert_eq!((shard.accounting().sequences, shard.accounting().steps), (2, 12));
        shard.insert(sequence(&[&chunks[2], &chunks[3]]));
        let held = shard.accounting();
        assert_eq!((held.sequences, held.steps, held.frame_bytes), (2, 12, 300));
        assert_eq!((held.inserted, held.sequences), (3, 2));
        assert_eq!(Arc::strong_count(&chunks[0]), 1, "only the test holds it");
        assert_eq!(Arc::strong_count(&chunks[1]), 2);
        shard.insert(sequence(&[&chunks[3]]));
        shard.insert(sequence(&[&chunks[3]]));
        let held = shard.accounting();
        assert_eq!((held.steps, held.frame_bytes), (4, 100));
    }

    #[test]
    fn keeps_the_memory_limit_with_free_slots_left() {
        let limit = Shard::index_bytes(64) + 10_000;
        let mut shard = Shard::new(0, 64, limit, 1.0);
        for i in 0..500 {
            shard.insert(sequence(&[&chunk(1 + (i * 7919) % 3_000)]));
            assert!(shard.accounting().bytes() <= limit);
        }
        assert!((2..64).contains(&shard.len()));
        assert_eq!(shard.held().count() as u64, shard.len());
    }

    #[test]
    fn recent_sequences_are_the_newest_ones() {
        let mut shard = Shard::new(0, 3, u64::MAX, 1.0);
        assert!(shard.recent(0).is_none());
        for _ in 0..5 {
            shard.insert(sequence(&[&chunk(1)]));
        }
        let found: Vec<_> = [0, 1, 2, 9].map(|age| shard.recent(age).unwrap()).into_iter().collect();
        assert_eq!(found.iter().map(|drawn| drawn.key.generation).collect::<Vec<_>>(), [4, 3, 2, 2]);
        assert!(found.iter().all(|drawn| shard.issued(drawn.key) && drawn.probability == 1.0 / 3.0));
    }

    #[test]
    fn gives_new_sequences_the_greatest_priority() {
        let mut shard = Shard::new(0, 4, u64::MAX, 0.5);
        shard.insert(sequence(&[&chunk(1)]));
        assert!(shard.set_priority(key(0, 0), 16.0));
        shard.insert(sequence(&[&chunk(1)]));
        assert!(shard.set_priority(key(0, 0), 0.0));
        shard.insert(sequence(&[&chunk(1)]));
        let weights: Vec<f64> = shard.held().map(|(_, weight)| weight).collect();
        assert_eq!(weights, [0.0, 4.0, 4.0]);
        for generation in 0..3 {
            assert!(shard.set_priority(key(generation as u32, generation), 0.0));
        }
        shard.insert(sequence(&[&chunk(1)]));
        assert_eq!(shard.held().last().unwrap().1, 1.0, "all are zero");
    }

    #[test]
    fn ignores_late_priorities() {
        let mut shard = Shard::new(0, 2, u64::MAX, 1.0);
        for _ in 0..3 {
            shard.insert(sequence(&[&chunk(1)]));
        }
        assert!(!shard.set_priority(key(0, 0), 9.0));
        assert!(shard.set_priority(key(0, 2), 5.0));
        assert_eq!(shard.held().map(|(_, weight)| weight).collect::<Vec<_>>(), [1.0, 5.0]);
        assert!(shard.issued(key(0, 0)) && shard.issued(key(0, 2)));
        assert!(!shard.issued(key(1, 0)) && !shard.issued(key(1, 3)) && !shard.issued(key(0, 4)));
    }

    #[test]
    fn draws_zero_priorities_only_if_all_are_zero() {
        let mut shard = Shard::new(0, 3, u64::MAX, 0.6);
        for _ in 0..5 {
            shard.insert(sequence(&[&chunk(1)]));
        }
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        shard.set_priority(key(2, 2), 0.0);
        for _ in 0..1_000 {
            let drawn = shard.draw(&mut rng).unwrap();
            assert!(drawn.key != key(2, 2) && drawn.probability == 0.5);
            assert_eq!(drawn.age, 4 - drawn.key.generation);
        }
        shard.set_priority(key(0, 3), 0.0);
        shard.set_priority(key(1, 4), 0.0);
        let mut seen = [0; 3];
        for _ in 0..3_000 {
            let drawn = shard.draw(&mut rng).unwrap();
            assert_eq!(drawn.probability, 1.0 / 3.0);
            assert_eq!(u64::from(drawn.key.slot), drawn.key.generation % 3);
            seen[drawn.key.slot as usize] += 1;
        }
        assert!(seen.iter().all(|&times| times > 850), "{seen:?}");
    }
}
