//! How far an environment of a built-in task has come, as the bytes that are saved of it.
//!
//! Little-endian: the layout's version (u16), run seed, index of the environment in the run, episodes begun and frames
//! (u64 each), score (f64), then the task's own numbers (u32 each). The envelope around it names the task and guards
//! against damage.

const VERSION: u16 = 1;

/// One environment in the middle of an episode.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Progress {
    /// The run's seed.
    pub run_seed: u64,
    /// Index of the environment in the whole run.
    pub environment: u64,
    /// Episodes begun, the present one included.
    pub episodes_begun: u64,
    /// Frames of the present episode so far.
    pub frames: u64,
    /// Score of the present episode so far.
    pub score: f64,
    /// What [`Task::save`](super::Task::save) gave.
    pub state: Vec<u32>,
}

impl Progress {
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for number in [self.run_seed, self.environment, self.episodes_begun, self.frames] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.score.to_le_bytes());
        bytes.extend(self.state.iter().flat_map(|number| number.to_le_bytes()));
        bytes
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote, or says what is wrong with the bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let cut_short = || "it is cut short".to_owned();
        let (version, bytes) = bytes.split_first_chunk().ok_or_else(cut_short)?;
        let version = u16::from_le_bytes(*version);
        if version != VERSION {
            return Err(format!("it has version {version} of the layout, and this program reads version {VERSION}"));
        }
        let (numbers, state) = bytes.split_first_chunk::<40>().ok_or_else(cut_short)?;
        let (numbers, _) = numbers.as_chunks();
        let (state, rest) = state.as_chunks();
        if !rest.is_empty() {
            return Err(cut_short());
        }
        let number = |at: usize| u64::from_le_bytes(numbers[at]);
        Ok(Self {
            run_seed: number(0),
            environment: number(1),
            episodes_begun: number(2),
            frames: number(3),
            score: f64::from_bits(number(4)),
            state: state.iter().map(|number| u32::from_le_bytes(*number)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress() -> Progress {
        Progress { run_seed: u64::MAX, environment: 3, episodes_begun: 12, frames: 7, score: -0.5, state: vec![7, 5] }
    }

    #[test]
    fn what_is_written_is_read_again() {
        assert_eq!(Progress::from_bytes(&progress().to_bytes()), Ok(progress()));
    }

    /// Cut after a whole number of the state it reads as a shorter state, which is the task's to refuse.
    #[test]
    fn a_cut_is_refused_or_leaves_a_shorter_state() {
        let bytes = progress().to_bytes();
        for length in 0..bytes.len() {
            match Progress::from_bytes(&bytes[..length]) {
                Ok(read) => assert_eq!(read.state.len(), (length - 42) / 4),
                Err(reason) => assert_eq!(reason, "it is cut short"),
            }
        }
    }

    #[test]
    fn another_version_is_named() {
        let mut newer = progress().to_bytes();
        newer[0] = 2;
        let reason = "it has version 2 of the layout, and this program reads version 1";
        assert_eq!(Progress::from_bytes(&newer), Err(reason.to_owned()));
    }
}
