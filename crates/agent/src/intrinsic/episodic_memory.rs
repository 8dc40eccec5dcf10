//! The embeddings of an episode, with exact nearest-neighbour distances.
//!
//! Layout: blocks of `LANES` entries, dimension by dimension within a block. The distances of a block's entries to a
//! query accumulate side by side in one small array, which the compiler vectorises, while each distance is still summed
//! in the order of its dimensions, exactly as in a plain scan.

use serde::{Deserialize, Serialize};

/// Entries in a block.
const LANES: usize = 16;

/// Maximum magnitude of a component, for which squared distances stay finite in `f32`.
pub const MAX_COMPONENT: f32 = 1e15;

/// Invalid arguments of an episodic memory.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum EpisodicMemoryError {
    /// An empty memory, or one that cannot be allocated.
    #[error("cannot allocate an episodic memory of {capacity} entries of {dimensions} dimensions")]
    Size {
        /// Requested entries.
        capacity: usize,
        /// Requested dimensions.
        dimensions: usize,
    },
    /// An embedding of another length.
    #[error("expected an embedding of {expected} components, got {found}")]
    Dimensions {
        /// Dimensions of the memory.
        expected: usize,
        /// Components of the embedding.
        found: usize,
    },
    /// A component that is not a number, or too large to measure distances with.
    #[error("component {component} of an embedding is {value}; expected at most 1e15 in magnitude")]
    Component {
        /// Index of the component.
        component: usize,
        /// Its value.
        value: f32,
    },
    /// A saved memory with too many entries or a partial one.
    #[error(
        "a saved episodic memory of {capacity} entries of {dimensions} dimensions holds {values} values: \
         too many, or not a multiple of the dimensions"
    )]
    Saved {
        /// Saved values.
        values: usize,
        /// Dimensions of an entry.
        dimensions: usize,
        /// Capacity in entries.
        capacity: usize,
    },
}

/// Embeddings f(x) of one episode, with exact k-nearest-neighbour distances. Appendix "Never Give Up", M.
///
/// Insertion is O(1) and replaces the oldest entry of a full memory. [`Self::clear`] keeps the allocation.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(into = "SavedMemory", try_from = "SavedMemory")]
pub struct EpisodicMemory {
    capacity: usize,
    dimensions: usize,
    /// Entry e, dimension d: block e / LANES, then d, then e % LANES. Lanes not yet in use are infinitely far away.
    blocks: Vec<f32>,
    len: usize,
    /// The entry that the next insertion writes.
    next: usize,
}

impl EpisodicMemory {
    /// An empty memory of `capacity` entries of `dimensions` components.
    pub fn new(capacity: usize, dimensions: usize) -> Result<Self, EpisodicMemoryError> {
        let impossible = EpisodicMemoryError::Size { capacity, dimensions };
        // Reserved at once: the operating system provides pages as they are first written, and insertions never
        // reallocate.
        let mut blocks = Vec::new();
        match capacity.div_ceil(LANES).checked_mul(LANES).and_then(|lanes| lanes.checked_mul(dimensions)) {
            None | Some(0) => return Err(impossible),
            Some(values) => blocks.try_reserve_exact(values).map_err(|_| impossible)?,
        }
        Ok(Self { capacity, dimensions, blocks, len: 0, next: 0 })
    }

    /// Number of embeddings.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Removes all embeddings, for a new episode; frees nothing.
    pub fn clear(&mut self) {
        self.blocks.clear();
        self.len = 0;
        self.next = 0;
    }

    /// Adds an embedding, in place of the oldest if the memory is full.
    pub fn insert(&mut self, embedding: &[f32]) -> Result<(), EpisodicMemoryError> {
        self.check(embedding)?;
        let (block, lane) = (self.next / LANES, self.next % LANES);
        let block_size = LANES * self.dimensions;
        if self.blocks.len() == block * block_size {
            self.blocks.resize(self.blocks.len() + block_size, f32::INFINITY);
        }
        let block = &mut self.blocks[block * block_size..][..block_size];
        for (row, &value) in block.chunks_exact_mut(LANES).zip(embedding) {
            row[lane] = value;
        }
        self.next = (self.next + 1) % self.capacity;
        self.len = (self.len + 1).min(self.capacity);
        Ok(())
    }

    /// Fills `nearest` with the squared distances to the `k` nearest entries, ascending.
    ///
    /// d²(f, M_i) = Σ_d (M_i,d − f_d)²
    ///
    /// Fewer than `k` if there are fewer entries. Each distance is summed in `f32` in the order of the dimensions, so
    /// the result equals [`nearest_by_scan`] bit for bit.
    pub fn nearest(&self, embedding: &[f32], k: usize, nearest: &mut Vec<f32>) -> Result<(), EpisodicMemoryError> {
        self.check(embedding)?;
        nearest.clear();
        if k == 0 {
            return Ok(());
        }
        let mut bound = f32::INFINITY;
        for block in self.blocks.chunks_exact(LANES * self.dimensions) {
            let distances = block_distances(block, embedding);
            if distances.iter().any(|&distance| distance < bound) {
                for distance in distances {
                    if distance < bound {
                        bound = keep(distance, k, nearest);
                    }
                }
            }
        }
        Ok(())
    }

    /// All entries in one vector, oldest first.
    pub fn entries(&self) -> Vec<f32> {
        let oldest = if self.len == self.capacity { self.next } else { 0 };
        let mut entries = Vec::with_capacity(self.len * self.dimensions);
        for age in 0..self.len {
            let entry = (oldest + age) % self.capacity;
            let start = entry / LANES * LANES * self.dimensions + entry % LANES;
            entries.extend(self.blocks[start..].iter().step_by(LANES).take(self.dimensions));
        }
        entries
    }

    fn check(&self, embedding: &[f32]) -> Result<(), EpisodicMemoryError> {
        if embedding.len() != self.dimensions {
            return Err(EpisodicMemoryError::Dimensions { expected: self.dimensions, found: embedding.len() });
        }
        let range = -MAX_COMPONENT..=MAX_COMPONENT;
        match embedding.iter().position(|value| !range.contains(value)) {
            None => Ok(()),
            Some(component) => Err(EpisodicMemoryError::Component { component, value: embedding[component] }),
        }
    }
}

/// Squared distances of a block's entries to the query, each summed in the order of the dimensions.
fn block_distances(block: &[f32], query: &[f32]) -> [f32; LANES] {
    let mut sums = [0.0; LANES];
    for (row, &component) in block.chunks_exact(LANES).zip(query) {
        for (sum, &value) in sums.iter_mut().zip(row) {
            let difference = value - component;
            *sum += difference * difference;
        }
    }
    sums
}

/// Inserts a distance into the `k` smallest, which stay sorted; returns the bound for further ones.
fn keep(distance: f32, k: usize, nearest: &mut Vec<f32>) -> f32 {
    let place = nearest.partition_point(|&other| other <= distance);
    if nearest.len() == k {
        nearest.pop();
    }
    nearest.insert(place, distance);
    if nearest.len() == k { nearest[k - 1] } else { f32::INFINITY }
}

/// The plain version of [`EpisodicMemory::nearest`], over entries in one slice.
///
/// A reference for tests and timings.
pub fn nearest_by_scan(entries: &[f32], embedding: &[f32], k: usize) -> Vec<f32> {
    let mut distances: Vec<f32> = entries
        .chunks_exact(embedding.len())
        .map(|entry| entry.iter().zip(embedding).fold(0.0, |sum, (a, b)| sum + (a - b) * (a - b)))
        .collect();
    if k < distances.len() {
        distances.select_nth_unstable_by(k, f32::total_cmp);
        distances.truncate(k);
    }
    distances.sort_unstable_by(f32::total_cmp);
    distances
}

/// Serialised form of a memory: its entries, oldest first.
#[derive(Serialize, Deserialize)]
struct SavedMemory {
    capacity: usize,
    dimensions: usize,
    entries: Vec<f32>,
}

impl From<EpisodicMemory> for SavedMemory {
    fn from(memory: EpisodicMemory) -> Self {
        Self { capacity: memory.capacity, dimensions: memory.dimensions, entries: memory.entries() }
    }
}

impl TryFrom<SavedMemory> for EpisodicMemory {
    type Error = EpisodicMemoryError;

    fn try_from(saved: SavedMemory) -> Result<Self, Self::Error> {
        let SavedMemory { capacity, dimensions, entries } = saved;
        let mut memory = Self::new(capacity, dimensions)?;
        if entries.len() % dimensions != 0 || entries.len() / dimensions > capacity {
            return Err(EpisodicMemoryError::Saved { values: entries.len(), dimensions, capacity });
        }
        for entry in entries.chunks_exact(dimensions) {
            memory.insert(entry)?;
        }
        Ok(memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nearest(memory: &EpisodicMemory, embedding: &[f32], k: usize) -> Vec<f32> {
        let mut distances = vec![f32::NAN];
        memory.nearest(embedding, k, &mut distances).unwrap();
        distances
    }

    fn memory_of(capacity: usize, entries: &[[f32; 2]]) -> EpisodicMemory {
        let mut memory = EpisodicMemory::new(capacity, 2).unwrap();
        for entry in entries {
            memory.insert(entry).unwrap();
        }
        memory
    }

    #[test]
    fn distances_match_hand_computed_values() {
        let memory = memory_of(10, &[[0.0, 0.0], [3.0, 4.0], [1.0, 1.0], [-1.0, 0.0]]);
        assert_eq!(nearest(&memory, &[0.0, 0.0], 3), [0.0, 1.0, 2.0]);
        assert_eq!(nearest(&memory, &[3.0, 3.0], 2), [1.0, 8.0]);
        assert_eq!(nearest(&memory, &[3.0, 3.0], 0), [0.0; 0]);
    }

    #[test]
    fn returns_all_distances_with_fewer_entries_than_neighbours() {
        assert_eq!(nearest(&memory_of(10, &[]), &[0.0, 0.0], 3), [0.0; 0]);
        assert_eq!(nearest(&memory_of(10, &[[3.0, 4.0], [0.0, 1.0]]), &[0.0, 0.0], 3), [1.0, 25.0]);
    }

    #[test]
    fn equal_entries_all_count() {
        let memory = memory_of(40, &[[1.0, 0.0]; 33]);
        assert_eq!(nearest(&memory, &[0.0, 0.0], 10), [1.0; 10]);
    }

    #[test]
    fn a_full_memory_forgets_the_oldest() {
        let mut memory = memory_of(3, &[[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 0.0]]);
        assert_eq!((memory.len(), memory.capacity, memory.dimensions), (3, 3, 2));
        assert_eq!(nearest(&memory, &[0.0, 0.0], 9), [4.0, 9.0, 16.0]);
        assert_eq!(memory.entries(), [2.0, 0.0, 3.0, 0.0, 4.0, 0.0]);
        memory.insert(&[5.0, 0.0]).unwrap();
        assert_eq!(memory.entries(), [3.0, 0.0, 4.0, 0.0, 5.0, 0.0]);
    }

    #[test]
    fn clear_removes_all_and_frees_nothing() {
        let mut memory = memory_of(100, &[[1.0, 0.0]; 50]);
        let room = memory.blocks.capacity();
        let place = memory.blocks.as_ptr();
        memory.clear();
        assert!(memory.is_empty());
        assert_eq!(nearest(&memory, &[1.0, 0.0], 5), [0.0; 0]);
        for _ in 0..250 {
            memory.insert(&[2.0, 0.0]).unwrap();
        }
        assert_eq!(nearest(&memory, &[1.0, 0.0], 2), [1.0, 1.0]);
        assert_eq!((memory.blocks.capacity(), memory.blocks.as_ptr()), (room, place));
    }

    #[test]
    fn refuses_invalid_sizes_and_embeddings() {
        for (capacity, dimensions) in [(0, 32), (30_000, 0), (usize::MAX, 32), (usize::MAX / 64, 8)] {
            let error = EpisodicMemory::new(capacity, dimensions).unwrap_err();
            assert_eq!(error, EpisodicMemoryError::Size { capacity, dimensions });
        }
        let mut memory = memory_of(3, &[[1.0, 0.0]]);
        let wrong_length = EpisodicMemoryError::Dimensions { expected: 2, found: 3 };
        assert_eq!(memory.insert(&[0.0; 3]), Err(wrong_length.clone()));
        assert_eq!(memory.nearest(&[0.0; 3], 1, &mut Vec::new()), Err(wrong_length));
        for value in [f32::NAN, f32::INFINITY, -1e16] {
            assert!(matches!(memory.insert(&[0.0, value]), Err(EpisodicMemoryError::Component { component: 1, .. })));
        }
        memory.insert(&[-MAX_COMPONENT; 2]).unwrap();
        let farthest = nearest(&memory, &[MAX_COMPONENT; 2], 3);
        assert!(farthest.len() == 2 && farthest.iter().all(|distance| distance.is_finite()));
    }

    #[test]
    fn refuses_a_damaged_saved_memory() {
        let saved = |text: &str| serde_json::from_str::<EpisodicMemory>(text).map(|memory| memory.len());
        assert_eq!(saved(r#"{"capacity":2,"dimensions":2,"entries":[1,2,3,4]}"#).unwrap(), 2);
        assert!(saved(r#"{"capacity":1,"dimensions":2,"entries":[1,2,3,4]}"#).is_err());
        assert!(saved(r#"{"capacity":2,"dimensions":2,"entries":[1,2,3]}"#).is_err());
        assert!(saved(r#"{"capacity":0,"dimensions":2,"entries":[]}"#).is_err());
        assert!(saved(r#"{"capacity":2,"dimensions":2,"entries":[1,1e30]}"#).is_err());
    }
}
