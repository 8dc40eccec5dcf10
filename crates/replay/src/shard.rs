//! A part of the replay with its own slots and priorities: oldest out first, drawn in proportion to priority.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::accounting::Accounting;
use crate::rng::Rng;
use crate::sequence::Sequence;
use crate::sum_tree::SumTree;

/// Names one sequence of the replay, also after it is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key {
    /// The shard.
    pub shard: u32,
    /// Its slot there, which others will have later.
    pub slot: u32,
    /// How many sequences the shard had been given before it.
    pub generation: u64,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sequence {} of shard {} (slot {})", self.generation, self.shard, self.slot)
    }
}

/// A sequence as it was drawn.
#[derive(Debug)]
pub(crate) struct Drawn {
    pub(crate) sequence: Arc<Sequence>,
    pub(crate) key: Key,
    /// With which it was drawn, within its shard.
    pub(crate) probability: f64,
    /// Sequences inserted into the shard since.
    pub(crate) age: u64,
}

/// Sequences are numbered as they come; number `n` is in slot `n % capacity`, and those from `oldest` on are held.
#[derive(Debug)]
pub(crate) struct Shard {
    index: u32,
    slots: Vec<Option<Arc<Sequence>>>,
    tree: SumTree,
    /// The number of the oldest sequence held.
    oldest: u64,
    /// The number that the next sequence gets.
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

    /// An empty shard whose next sequence has this number.
    pub(crate) fn starting_at(mut self, number: u64, late_priorities: u64) -> Self {
        (self.oldest, self.next) = (number, number);
        self.held.inserted = number;
        self.held.evicted = number;
        self.held.late_priorities = late_priorities;
        self
    }

    /// Bytes of the slots and the tree.
    pub(crate) fn index_bytes(capacity: usize) -> u64 {
        (capacity * size_of::<Option<Arc<Sequence>>>()) as u64 + SumTree::bytes(capacity)
    }

    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
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
        Accounting { oldest_age: self.len().saturating_sub(1), ..self.held }
    }

    /// Adds a sequence with the greatest priority of those held; the oldest go until it fits.
    pub(crate) fn insert(&mut self, sequence: Arc<Sequence>) {
        let greatest = self.tree.max();
        self.insert_weighted(sequence, if greatest > 0.0 { greatest } else { 1.0 });
    }

    /// Adds a sequence with a priority that has been raised to the exponent already.
    pub(crate) fn insert_weighted(&mut self, sequence: Arc<Sequence>, weight: f64) {
        if self.len() == self.capacity() as u64 {
            self.evict_oldest();
        }
        let slot = self.slot(self.next);
        self.account_added(&sequence);
        self.tree.set(slot, weight);
        self.slots[slot] = Some(sequence);
        self.next += 1;
        while self.held.bytes() > self.memory_limit && self.len() > 1 {
            self.evict_oldest();
        }
    }

    /// Draws one sequence; the shard is not empty.
    pub(crate) fn draw(&self, rng: &mut Rng) -> Option<Drawn> {
        let point = rng.uniform();
        let total = self.tree.total();
        let (slot, probability) = if total > 0.0 {
            let slot = self.tree.find(point * total);
            (slot, self.tree.get(slot) / total)
        } else {
            // Every priority is zero: then none is worth more than another.
            let number = self.oldest + (point * self.len() as f64) as u64;
            (self.slot(number), 1.0 / self.len() as f64)
        };
        let sequence = Arc::clone(self.slots.get(slot)?.as_ref()?);
        let number = self.number(slot);
        let key = Key { shard: self.index, slot: slot as u32, generation: number };
        Some(Drawn { sequence, key, probability, age: self.next - 1 - number })
    }

    /// Whether the key names a sequence that this shard has, or had.
    pub(crate) fn issued(&self, key: Key) -> bool {
        key.generation < self.next && key.slot as usize == self.slot(key.generation)
    }

    /// Sets a priority, finite and not negative; false, and counted, where the item is gone.
    pub(crate) fn set_priority(&mut self, key: Key, priority: f32) -> bool {
        let held = self.issued(key) && key.generation >= self.oldest;
        if held {
            self.tree.set(key.slot as usize, f64::from(priority).powf(self.priority_exponent));
        } else {
            self.held.late_priorities += 1;
        }
        held
    }

    /// Every sequence held with its weight, oldest first.
    pub(crate) fn held(&self) -> impl Iterator<Item = (&Arc<Sequence>, f64)> {
        (self.oldest..self.next).filter_map(|number| {
            let slot = self.slot(number);
            Some((self.slots[slot].as_ref()?, self.tree.get(slot)))
        })
    }

    fn slot(&self, number: u64) -> usize {
        (number % self.slots.len() as u64) as usize
    }

    /// The number of the sequence in a slot that is taken.
    fn number(&self, slot: usize) -> u64 {
        let capacity = self.slots.len() as u64;
        let behind = (self.slot(self.next) as u64 + capacity - slot as u64 - 1) % capacity;
        self.next - 1 - behind
    }

    fn evict_oldest(&mut self) {
        let slot = self.slot(self.oldest);
        self.tree.set(slot, 0.0);
        if let Some(sequence) = self.slots[slot].take() {
            self.account_removed(&sequence);
        }
        self.oldest += 1;
    }

    fn account_added(&mut self, sequence: &Sequence) {
        self.held.sequences += 1;
        self.held.inserted += 1;
        self.held.sequence_bytes += sequence.own_bytes();
        for chunk in &sequence.chunks {
            if chunk.uses.fetch_add(1, Ordering::Relaxed) == 0 {
                self.held.steps += u64::from(chunk.steps);
                self.held.frame_bytes += chunk.frames.len() as u64;
                self.held.step_bytes += chunk.bytes_besides_frames();
            }
        }
    }

    fn account_removed(&mut self, sequence: &Sequence) {
        self.held.sequences -= 1;
        self.held.evicted += 1;
        self.held.sequence_bytes -= sequence.own_bytes();
        for chunk in &sequence.chunks {
            if chunk.uses.fetch_sub(1, Ordering::Relaxed) == 1 {
                self.held.steps -= u64::from(chunk.steps);
                self.held.frame_bytes -= chunk.frames.len() as u64;
                self.held.step_bytes -= chunk.bytes_besides_frames();
            }
        }
    }
}
