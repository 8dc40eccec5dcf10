//! Named tensors on the host, and safetensors files of them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use safetensors::tensor::{SafeTensorError, View};
pub use safetensors::{Dtype, SafeTensors};
use tch::{Kind, Tensor};

use crate::error::{AgentError, Result};

/// Tensors by name.
pub type NamedTensors = BTreeMap<String, HostTensor>;

/// One tensor on the host, little-endian, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTensor {
    /// Element type.
    pub dtype: Dtype,
    /// Shape.
    pub shape: Vec<usize>,
    /// The elements.
    pub bytes: Vec<u8>,
}

impl HostTensor {
    /// Copies a tensor from any device, as 32-bit floats.
    pub fn from_tensor(tensor: &Tensor) -> Result<Self> {
        let elements = tensor.numel();
        let mut bytes = vec![0; elements * 4];
        tensor.f_detach()?.f_to_kind(Kind::Float)?.f_copy_data_u8(&mut bytes, elements)?;
        let shape = tensor.size().into_iter().map(|n| n as usize).collect();
        Ok(Self { dtype: Dtype::F32, shape, bytes })
    }

    /// Returns the tensor on the CPU.
    pub fn tensor(&self) -> Result<Tensor> {
        let kind = match self.dtype {
            Dtype::U8 => Kind::Uint8,
            Dtype::I64 => Kind::Int64,
            Dtype::F16 => Kind::Half,
            Dtype::F32 => Kind::Float,
            Dtype::F64 => Kind::Double,
            other => return Err(invalid(format!("elements of type {other:?} are not supported"))),
        };
        let size: Vec<i64> = self.shape.iter().map(|&n| n as i64).collect();
        Ok(Tensor::f_from_data_size(&self.bytes, &size, kind)?)
    }

    /// Returns element type and shape, for messages.
    pub fn describe(&self) -> String {
        format!("{:?} {:?}", self.dtype, self.shape)
    }
}

impl View for &HostTensor {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.bytes)
    }

    fn data_len(&self) -> usize {
        self.bytes.len()
    }
}

/// Writes a safetensors file.
pub fn write(tensors: &NamedTensors, path: &Path) -> Result<()> {
    safetensors::serialize_to_file(tensors, &None, path).map_err(|error| match error {
        SafeTensorError::IoError(cause) => cause.into(),
        other => invalid(other.to_string()),
    })
}

/// Copies the tensors out of a safetensors file's bytes.
pub fn parse(bytes: &[u8]) -> Result<NamedTensors> {
    let file = SafeTensors::deserialize(bytes).map_err(|error| invalid(error.to_string()))?;
    let copy = |(name, view): (String, safetensors::tensor::TensorView)| {
        (name, HostTensor { dtype: view.dtype(), shape: view.shape().to_vec(), bytes: view.data().to_vec() })
    };
    Ok(file.tensors().into_iter().map(copy).collect())
}

fn invalid(reason: String) -> AgentError {
    AgentError::Format { what: "safetensors file", reason }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::Random;

    fn tensors() -> NamedTensors {
        let values = Tensor::from_slice(&[1.0f32, -2.5, 3.0, 0.0, 5.0, 6.0]).view([2, 3]);
        let bytes = HostTensor { dtype: Dtype::U8, shape: vec![3], bytes: vec![1, 2, 3] };
        let scalar = HostTensor { dtype: Dtype::F64, shape: vec![], bytes: 1.5f64.to_le_bytes().to_vec() };
        let weight = HostTensor::from_tensor(&values).unwrap();
        [("b.weight", weight), ("a", bytes), ("z", scalar)].map(|(name, tensor)| (name.to_owned(), tensor)).into()
    }

    fn bytes() -> Vec<u8> {
        safetensors::serialize(&tensors(), &None).unwrap()
    }

    #[test]
    fn reads_what_it_writes() {
        let path = std::env::temp_dir().join(format!("agent-tensors-{}.safetensors", std::process::id()));
        write(&tensors(), &path).unwrap();
        let written = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let read = parse(&written).unwrap();
        assert_eq!(read, tensors());
        assert_eq!(read["b.weight"].tensor().unwrap().double_value(&[0, 1]), -2.5);
        assert_eq!(read["z"].tensor().unwrap().double_value(&[]), 1.5);
    }

    #[test]
    fn refuses_cut_or_lengthened_files_with_a_message() {
        let whole = bytes();
        for length in 0..whole.len() {
            let error = parse(&whole[..length]).unwrap_err().to_string();
            assert!(error.starts_with("not a valid safetensors file: "), "{error}");
        }
        assert!(parse(&[&whole[..], &[0]].concat()).is_err());
    }

    #[test]
    fn random_damage_never_panics() {
        let whole = bytes();
        let mut random = Random::seed_from_u64(5);
        for _ in 0..20_000 {
            let mut damaged = whole.clone();
            for _ in 0..=random.random_range(0..3) {
                let at = random.random_range(0..damaged.len());
                damaged[at] = random.random::<u8>();
            }
            let _ = parse(&damaged);
        }
    }
}
