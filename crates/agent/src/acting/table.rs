//! The table of observations on the GPU, from which a step gathers its rows.
//!
//! Each environment has a row for observations uploaded from pinned memory. Observations elsewhere, such as the last of
//! an episode whose pinned row already holds the next episode's first, use separate rows, so that the table can hold
//! two observations of one environment.

use tch::{Device, Kind, Tensor};
use torch_ext::Stream;
use torch_ext::upload::{Piece, UploadBuffer};

use super::observations::{Observation, Stamp};
use super::{ActingRow, RecurrentStates};
use crate::error::Result;
use crate::networks::Networks;
use crate::observation::{ObservationSpec, tensor_kind};

/// The table and its uploads.
#[derive(Debug)]
pub(super) struct ObservationTable {
    /// Uploads from pinned memory. Both buffers are dropped before the table, since they wait for their uploads.
    pinned: UploadBuffer,
    /// Uploads by way of an own buffer, for observations elsewhere.
    copied: UploadBuffer,
    contents: Contents,
    rows: Rows,
}

/// The row of an observation of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RowAssignment {
    /// Row of the table.
    row: usize,
    /// Whether it has been uploaded already.
    is_uploaded: bool,
}

/// The table itself: a row per environment, as many for copied observations, and one of zeros.
#[derive(Debug)]
struct Rows {
    /// `[rows, words]`.
    words: Tensor,
    row_bytes: usize,
    /// Element type of observations.
    kind: Kind,
}

impl Rows {
    fn new(spec: &ObservationSpec, environments: usize, device: Device) -> Result<Self> {
        let row_bytes = spec.bytes();
        let word = word(row_bytes);
        let size = [(2 * environments + 1) as i64, (row_bytes / word.elt_size_in_bytes()) as i64];
        Ok(Self { words: Tensor::f_zeros(size, (word, device))?, row_bytes, kind: tensor_kind(spec.kind()) })
    }

    /// The rows at `index`, `[rows, values]`.
    fn gather(&self, index: &Tensor) -> Result<Tensor> {
        Ok(self.words.f_index_select(0, index)?.f_view_dtype(self.kind)?)
    }

    /// Offset of a row in bytes.
    fn start(&self, row: usize) -> usize {
        row * self.row_bytes
    }
}

/// The widest integer that divides a row: a gather uses one thread per element.
fn word(row_bytes: usize) -> Kind {
    let fits = |kind: &Kind| row_bytes.is_multiple_of(kind.elt_size_in_bytes());
    [Kind::Int64, Kind::Int].into_iter().find(fits).unwrap_or(Kind::Uint8)
}

/// Content uploaded ahead to the environments' rows and not yet used by a step.
#[derive(Debug)]
struct Contents(Vec<Option<Stamp>>);

impl Contents {
    /// Sets the content of an environment's row; `None` while it is uncertain.
    fn set(&mut self, environment: usize, stamp: Option<Stamp>) {
        self.0[environment] = stamp;
    }

    /// Assigns rows to the observations of a step, given by environment and stamp (`None` outside pinned memory).
    /// This uses up the content of these environments' rows.
    fn place(&mut self, observations: impl Iterator<Item = (usize, Option<Stamp>)>) -> Vec<RowAssignment> {
        let mut copied = self.0.len();
        let place = |(environment, stamp): (usize, Option<Stamp>)| match stamp {
            Some(_) => RowAssignment { row: environment, is_uploaded: self.0[environment].take() == stamp },
            None => {
                copied += 1;
                RowAssignment { row: copied - 1, is_uploaded: false }
            }
        };
        observations.map(place).collect()
    }
}

impl ObservationTable {
    /// A table for the environments of `states`. Waits for the current stream.
    pub fn new(networks: &Networks, states: &RecurrentStates) -> Result<Self> {
        let (spec, environments) = (networks.input().spec(), states.environments());
        let rows = Rows::new(spec, environments, states.table.device())?;
        // Uploads use another stream and must come after the zeros.
        Stream::current()?.synchronize()?;
        Ok(Self {
            pinned: UploadBuffer::new(0)?,
            copied: UploadBuffer::new(environments * spec.bytes())?,
            contents: Contents(vec![None; environments]),
            rows,
        })
    }

    /// The row that is always zero.
    pub fn blank(&self) -> usize {
        2 * self.contents.0.len()
    }

    /// Uploads observations in pinned memory ahead of their step, on the current stream.
    ///
    /// Others wait for the step.
    pub fn send(&mut self, observations: &[(usize, Observation<'_>)]) -> Result<()> {
        let mut pieces = Vec::with_capacity(observations.len());
        for (environment, observation) in observations {
            if let Some(piece) = observation.piece() {
                pieces.push((piece, self.rows.start(*environment)));
                self.contents.set(*environment, None);
            }
        }
        self.pinned.send_pieces(&pieces, &self.rows.words)?;
        for (environment, observation) in observations {
            if let Some(stamp) = observation.stamp() {
                self.contents.set(*environment, Some(stamp));
            }
        }
        Ok(())
    }

    /// Uploads the missing observations of a step on the current stream; returns the rows of all of them.
    pub fn complete(&mut self, rows: &[ActingRow<'_>]) -> Result<Vec<usize>> {
        let assigned = self.contents.place(rows.iter().map(|row| (row.environment, row.observation.stamp())));
        let missing = || rows.iter().zip(&assigned).filter(|(_, assigned)| !assigned.is_uploaded);
        let mut pinned = Vec::new();
        for (row, assigned) in missing() {
            pinned.extend(row.observation.piece().map(|piece| (piece, self.rows.start(assigned.row))));
        }
        self.pinned.send_pieces(&pinned, &self.rows.words)?;
        let mut copied = Vec::new();
        for (row, assigned) in missing().filter(|(row, _)| row.observation.piece().is_none()) {
            let start = copied.len() * self.rows.row_bytes;
            let range = start..start + self.rows.row_bytes;
            self.copied.fill()?[range.clone()].copy_from_slice(&row.observation);
            copied.push((Piece::Own(range), self.rows.start(assigned.row)));
        }
        self.copied.send_pieces(&copied, &self.rows.words)?;
        Ok(assigned.iter().map(|assigned| assigned.row).collect())
    }

    /// Makes later work of a stream wait for all uploads so far.
    pub fn block(&self, stream: &Stream) -> Result<()> {
        self.pinned.block(stream)?;
        Ok(self.copied.block(stream)?)
    }

    /// Waits for all uploads, after which their source memory may be written again.
    pub fn settle(&mut self) -> Result<()> {
        self.pinned.settle()?;
        Ok(self.copied.settle()?)
    }

    /// The rows at `index`, `[rows, values]`.
    pub fn gather(&self, index: &Tensor) -> Result<Tensor> {
        self.rows.gather(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::ObservationKind;

    const ENVIRONMENTS: usize = 4;

    fn contents() -> Contents {
        Contents(vec![None; ENVIRONMENTS])
    }

    fn uploaded(row: usize) -> RowAssignment {
        RowAssignment { row, is_uploaded: true }
    }

    fn missing(row: usize) -> RowAssignment {
        RowAssignment { row, is_uploaded: false }
    }

    #[test]
    fn an_upload_ahead_serves_exactly_one_step() {
        let (mut contents, [one, three]) = (contents(), [Stamp::new(), Stamp::new()]);
        contents.set(3, Some(three));
        let step = [(1, Some(one)), (3, Some(three))];
        assert_eq!(contents.place(step.into_iter()), [missing(1), uploaded(3)]);
        assert_eq!(contents.place(step.into_iter()), [missing(1), missing(3)]);
    }

    #[test]
    fn uploads_content_that_differs_from_the_upload_ahead() {
        let (mut contents, [old, new]) = (contents(), [Stamp::new(), Stamp::new()]);
        contents.set(0, Some(old));
        assert_eq!(contents.place([(0, Some(new))].into_iter()), [missing(0)]);
        // The row now holds the new one.
        assert_eq!(contents.place([(0, Some(old))].into_iter()), [missing(0)]);
        // Of two uploads the later one counts.
        contents.set(0, Some(old));
        contents.set(0, Some(new));
        assert_eq!(contents.place([(0, Some(new))].into_iter()), [uploaded(0)]);
        // A failed upload is not there.
        contents.set(0, Some(old));
        contents.set(0, None);
        assert_eq!(contents.place([(0, Some(old))].into_iter()), [missing(0)]);
    }

    #[test]
    fn unused_uploads_stay_for_the_next_step() {
        let (mut contents, [zero, two]) = (contents(), [Stamp::new(), Stamp::new()]);
        contents.set(0, Some(zero));
        contents.set(2, Some(two));
        assert_eq!(contents.place([(2, Some(two))].into_iter()), [uploaded(2)]);
        assert_eq!(contents.place([(0, Some(zero)), (2, Some(two))].into_iter()), [uploaded(0), missing(2)]);
    }

    #[test]
    fn the_last_observation_of_an_episode_does_not_displace_the_next_first() {
        let (mut contents, first) = (contents(), Stamp::new());
        contents.set(1, Some(first));
        let last = [(1, None), (0, Some(Stamp::new())), (3, None)];
        assert_eq!(contents.place(last.into_iter()), [missing(ENVIRONMENTS), missing(0), missing(ENVIRONMENTS + 1)]);
        assert_eq!(contents.place([(1, Some(first))].into_iter()), [uploaded(1)]);
        // There is room for as many as there are environments, and the row of zeros follows.
        let all = contents.place((0..ENVIRONMENTS).map(|environment| (environment, None)));
        assert_eq!(all.last(), Some(&missing(2 * ENVIRONMENTS - 1)));
    }

    #[test]
    fn gathers_rows_unchanged() {
        let specs = [
            (vec![210, 160], ObservationKind::U8, Kind::Int64),
            (vec![6], ObservationKind::F32, Kind::Int64),
            (vec![3], ObservationKind::F32, Kind::Int),
            (vec![5, 3], ObservationKind::U8, Kind::Uint8),
        ];
        for (shape, kind, wide) in specs {
            let spec = ObservationSpec::array(shape, kind);
            let rows = Rows::new(&spec, ENVIRONMENTS, Device::Cpu).unwrap();
            assert_eq!(rows.words.kind(), wide);
            let bytes = |row: usize| -> Vec<u8> { (0..spec.bytes()).map(|i| (i + 17 * row) as u8 % 64).collect() };
            let value = |row: usize| Tensor::f_from_data_size(&bytes(row), &[spec.values() as i64], rows.kind).unwrap();
            for row in 0..2 * ENVIRONMENTS {
                let words = Tensor::from_slice(&bytes(row)).view_dtype(wide);
                rows.words.get(row as i64).copy_(&words);
                assert_eq!(rows.start(row), row * spec.bytes());
            }
            let gathered = rows.gather(&Tensor::from_slice(&[5i64, 0, 8, 5])).unwrap();
            assert_eq!(gathered.size(), [4, spec.values() as i64]);
            assert!(gathered.is_contiguous());
            for (i, row) in [(0, 5), (1, 0), (3, 5)] {
                assert!(gathered.get(i).equal(&value(row)), "{spec:?}, row {row}");
            }
            assert!(gathered.get(2).equal(&value(0).zeros_like()), "{spec:?}");
        }
    }
}
