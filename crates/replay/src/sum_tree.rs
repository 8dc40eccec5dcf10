//! Sums and maxima over the weights of a shard's slots.
//!
//! A binary tree over a power of two of leaves. Each node is recomputed from its two children, never incremented, so
//! the total is always the pairwise sum of the present leaves: it cannot drift and needs no rebuilding.

/// Weights by slot, in f64. Complexity for n slots: `set` and `find` O(log n), `get`, `total` and `max` O(1).
#[derive(Clone, Debug)]
pub(crate) struct SumTree {
    /// Nodes in heap order: 1 is the root, the leaves are the upper half.
    nodes: Vec<Node>,
    leaves: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Node {
    sum: f64,
    max: f64,
}

impl SumTree {
    /// Creates a tree of at least `slots` leaves, all zero.
    pub(crate) fn new(slots: usize) -> Self {
        let leaves = slots.next_power_of_two();
        Self { nodes: vec![Node::default(); 2 * leaves], leaves }
    }

    /// Bytes of a tree for `slots` slots.
    pub(crate) fn bytes(slots: usize) -> u64 {
        (2 * slots.next_power_of_two() * size_of::<Node>()) as u64
    }

    /// The sum of all weights.
    pub(crate) fn total(&self) -> f64 {
        self.nodes[1].sum
    }

    /// The largest weight.
    pub(crate) fn max(&self) -> f64 {
        self.nodes[1].max
    }

    pub(crate) fn get(&self, slot: usize) -> f64 {
        self.nodes[self.leaves + slot].sum
    }

    /// Sets the weight of a slot, which is finite and not negative.
    pub(crate) fn set(&mut self, slot: usize, weight: f64) {
        debug_assert!(weight.is_finite() && weight >= 0.0, "slot {slot}: {weight}");
        let mut node = self.leaves + slot;
        self.nodes[node] = Node { sum: weight, max: weight };
        while node > 1 {
            node /= 2;
            let (left, right) = (self.nodes[2 * node], self.nodes[2 * node + 1]);
            self.nodes[node] = Node { sum: left.sum + right.sum, max: left.max.max(right.max) };
        }
    }

    /// Finds the slot at `point` of the weights laid end to end, 0 <= point < total.
    ///
    /// Never returns a slot of weight zero while the total is positive.
    pub(crate) fn find(&self, mut point: f64) -> usize {
        let mut node = 1;
        while node < self.leaves {
            let (left, right) = (self.nodes[2 * node].sum, self.nodes[2 * node + 1].sum);
            // Subtraction rounds, so the point may lie past the last positive weight: stay left of it.
            if point < left || right == 0.0 {
                node *= 2;
            } else {
                point -= left;
                node = 2 * node + 1;
            }
        }
        node - self.leaves
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn total_is_the_sum_of_the_leaves_after_a_million_operations() {
        for slots in [1, 7, 1_000] {
            let mut tree = SumTree::new(slots);
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(slots as u64);
            for _ in 0..1_000_000 {
                // Seventeen orders of magnitude and zeros make an incremented sum drift.
                let weight =
                    if rng.random_range(0..8) == 0 { 0.0 } else { 10f64.powf(rng.random::<f64>() * 17.0 - 8.0) };
                tree.set(rng.random_range(0..slots), weight);
            }
            let weights: Vec<f64> = (0..slots).map(|slot| tree.get(slot)).collect();
            let mut rebuilt = SumTree::new(slots);
            for (slot, &weight) in weights.iter().enumerate() {
                rebuilt.set(slot, weight);
            }
            assert_eq!(tree.nodes, rebuilt.nodes);
            let sum: f64 = weights.iter().sum();
            assert!((tree.total() - sum).abs() <= 1e-12 * sum, "{} {sum}", tree.total());
            assert_eq!(tree.max(), weights.iter().copied().fold(0.0, f64::max));
        }
    }

    #[test]
    fn finds_the_slot_under_a_point() {
        let mut tree = SumTree::new(5);
        for (slot, weight) in [2.0, 0.0, 1.0, 0.0, 3.0].into_iter().enumerate() {
            tree.set(slot, weight);
        }
        assert_eq!(tree.total(), 6.0);
        assert_eq!(tree.max(), 3.0);
        for (point, slot) in [(0.0, 0), (1.99, 0), (2.0, 2), (2.99, 2), (3.0, 4), (5.99, 4), (6.0, 4), (7.0, 4)] {
            assert_eq!(tree.find(point), slot, "{point}");
        }
    }

    #[test]
    fn never_finds_a_zero_weight() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut tree = SumTree::new(64);
        for slot in 0..64 {
            tree.set(slot, if rng.random_range(0..2) == 0 { 0.0 } else { rng.random::<f64>() * 0.1 });
        }
        for _ in 0..100_000 {
            let slot = tree.find(rng.random::<f64>() * tree.total());
            assert!(tree.get(slot) > 0.0);
        }
        assert!(tree.get(tree.find(tree.total())) > 0.0);
    }
}
