//! The steps of recorded episodes as tensors, for analysis outside `meme`.

use std::path::Path;

use agent::tensor_file::{self, Dtype, HostTensor};
use envs::{EnvSpec, ObservationKind, ObservationPart};
use train::roles::demonstration::DemonstrationStep;

/// The columns of a table of steps.
#[derive(Debug, Default)]
pub struct StepTable {
    observation: Vec<u8>,
    action: Vec<i64>,
    reward: Vec<f32>,
    q: Vec<f32>,
    preference: Vec<f32>,
    /// r_NGU, its RND part and its episodic part.
    intrinsic: Vec<f32>,
    /// 1 at the first step of an episode.
    first: Vec<u8>,
    ended: bool,
}

impl StepTable {
    /// Adds a row.
    pub fn add(&mut self, step: &DemonstrationStep) {
        self.first.push((self.ended || self.action.is_empty()).into());
        self.ended = step.end.is_some();
        self.observation.extend(&step.observation);
        self.action.push(step.action as i64);
        self.reward.push(step.reward as f32);
        self.q.extend(&step.decision.q);
        self.preference.extend(&step.decision.preferences);
        self.intrinsic.extend([step.intrinsic.ngu, step.intrinsic.rnd, step.intrinsic.episodic]);
    }

    /// Writes the table to a safetensors file, one tensor per column, with steps as the first dimension.
    pub fn write(self, spec: &EnvSpec, file: &Path) -> agent::Result<()> {
        let rows = self.action.len();
        let shape = |inner: &[usize]| [&[rows], inner].concat();
        let floats = |values: &[f32], width: &[usize]| HostTensor {
            dtype: Dtype::F32,
            shape: shape(width),
            bytes: values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        };
        let action = self.action.iter().flat_map(|action| action.to_le_bytes()).collect();
        let columns = [
            ("action", HostTensor { dtype: Dtype::I64, shape: shape(&[]), bytes: action }),
            ("reward", floats(&self.reward, &[])),
            ("q", floats(&self.q, &[spec.actions()])),
            ("preference", floats(&self.preference, &[spec.actions()])),
            ("intrinsic", floats(&self.intrinsic, &[3])),
            ("first", HostTensor { dtype: Dtype::U8, shape: shape(&[]), bytes: self.first }),
        ];
        let columns = columns.map(|(name, column)| (name.to_owned(), column));
        let parts = spec.observation_arrays();
        let places = ObservationPart::places(&parts);
        let observations = parts.iter().zip(&places).map(|(part, place)| {
            let name =
                if part.name.is_empty() { "observation".to_owned() } else { format!("observation.{}", part.name) };
            let dtype = match part.kind {
                ObservationKind::U8 => Dtype::U8,
                ObservationKind::F32 => Dtype::F32,
            };
            let rows = self.observation.chunks_exact(spec.observation_bytes());
            let bytes = rows.flat_map(|row| &row[place.clone()]).copied().collect();
            (name, HostTensor { dtype, shape: shape(&part.shape), bytes })
        });
        tensor_file::write(&columns.into_iter().chain(observations).collect(), file)
    }
}
