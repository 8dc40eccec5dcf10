//! Repeated faults, reported once and then counted.

use std::collections::BTreeMap;

/// Maximum number of kinds of faults that are counted.
const MAX_KINDS: usize = 200;

/// Counts faults that differ only in their numbers as one.
#[derive(Debug, Default)]
pub(crate) struct FaultLog {
    counts: BTreeMap<String, u64>,
    /// The kind of the error that ends the run.
    ending: Option<String>,
}

impl FaultLog {
    /// Returns the message for a fault: in full the first time, with its count the 10th, 100th and so on, else none.
    pub(crate) fn record(&mut self, fault: &str) -> Option<String> {
        let kind = without_numbers(fault);
        if self.ending.as_ref() == Some(&kind) {
            return None;
        }
        if self.counts.len() >= MAX_KINDS && !self.counts.contains_key(&kind) {
            return None;
        }
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        match *count {
            1 => Some(fault.to_owned()),
            count if is_power_of_ten(count) => Some(format!("{count} times so far: {fault}")),
            _ => None,
        }
    }

    /// Leaves out faults like this one from now on: it ends the run, and the error at the end describes it.
    pub(crate) fn end_with(&mut self, fault: &str) {
        self.ending = Some(without_numbers(fault));
    }

    /// Summarises the faults that happened more than once.
    pub(crate) fn summary(&self) -> Option<String> {
        let repeated: Vec<u64> = self.counts.values().copied().filter(|&count| count > 1).collect();
        let (faults, kinds) = (repeated.iter().sum::<u64>(), repeated.len());
        match kinds {
            0 => None,
            1 => Some(format!("recovered from the same fault {faults} times")),
            _ => Some(format!("recovered from {faults} faults of {kinds} kinds")),
        }
    }
}

fn is_power_of_ten(mut count: u64) -> bool {
    while count > 1 && count.is_multiple_of(10) {
        count /= 10;
    }
    count == 1
}

fn without_numbers(text: &str) -> String {
    let mut kind = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_ascii_digit() {
            true if kind.ends_with('0') => {}
            true => kind.push('0'),
            false => kind.push(c),
        }
    }
    kind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_fault_is_reported_once_and_then_counted() {
        let mut log = FaultLog::default();
        let reported: Vec<String> = (1..=120).filter_map(|i| log.record(&format!("worker {i} raised"))).collect();
        assert_eq!(
            reported,
            ["worker 1 raised", "10 times so far: worker 10 raised", "100 times so far: worker 100 raised"]
        );
        assert_eq!(log.record("another").as_deref(), Some("another"));
        assert_eq!(log.summary().unwrap(), "recovered from the same fault 120 times");
        log.record("another");
        log.end_with("worker 7 of 8 gave up");
        assert_eq!(log.record("worker 8 of 8 gave up"), None);
        assert_eq!(log.summary().unwrap(), "recovered from 122 faults of 2 kinds");
    }

    #[test]
    fn reports_a_limited_number_of_different_faults() {
        let mut log = FaultLog::default();
        let reported = (0..1000).filter(|&i| log.record(&"x".repeat(i)).is_some()).count();
        assert_eq!(reported, MAX_KINDS);
        assert_eq!(FaultLog::default().summary(), None);
    }
}
