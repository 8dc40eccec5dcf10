//! The safetensors format: a JSON header with names, types, shapes and places, then the bytes.
//!
//! Written and read as a stream of plain bytes, so that a copy of the tensors can be taken quickly and written at
//! leisure.

use std::collections::{BTreeMap, HashSet};
use std::io::{Read, Write};

use serde::{Deserialize, Serialize};
use tch::{Kind, Tensor};

use crate::error::{AgentError, Result};

/// Headers longer than this are refused, as other readers of the format do.
const LONGEST_HEADER: u64 = 100_000_000;

/// Element types that occur here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ElementType {
    /// 8-bit unsigned integer.
    U8,
    /// 64-bit signed integer.
    I64,
    /// 16-bit float.
    F16,
    /// 32-bit float.
    F32,
    /// 64-bit float.
    F64,
}

impl ElementType {
    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::F16 => 2,
            Self::F32 => 4,
            Self::I64 | Self::F64 => 8,
        }
    }

    fn kind(self) -> Kind {
        match self {
            Self::U8 => Kind::Uint8,
            Self::I64 => Kind::Int64,
            Self::F16 => Kind::Half,
            Self::F32 => Kind::Float,
            Self::F64 => Kind::Double,
        }
    }
}

/// One tensor on the host, little-endian, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTensor {
    /// Element type.
    pub element: ElementType,
    /// Shape.
    pub shape: Vec<usize>,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl HostTensor {
    /// A copy of an f32 tensor.
    pub fn from_tensor(tensor: &Tensor) -> Result<Self> {
        let elements = tensor.numel();
        let mut bytes = vec![0; elements * 4];
        tensor.f_detach()?.f_to_kind(Kind::Float)?.f_copy_data_u8(&mut bytes, elements)?;
        let shape = tensor.size().into_iter().map(|n| n as usize).collect();
        Ok(Self { element: ElementType::F32, shape, bytes })
    }

    /// The tensor, on the CPU.
    pub fn tensor(&self) -> Result<Tensor> {
        let size: Vec<i64> = self.shape.iter().map(|&n| n as i64).collect();
        Ok(Tensor::f_from_data_size(&self.bytes, &size, self.element.kind())?)
    }

    /// Element type and shape in words.
    pub fn describe(&self) -> String {
        format!("{:?} {:?}", self.element, self.shape)
    }
}

/// Named tensors and notes about them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TensorFile {
    /// Notes, each a name and a text.
    pub metadata: BTreeMap<String, String>,
    /// The tensors by name.
    pub tensors: BTreeMap<String, HostTensor>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    dtype: ElementType,
    shape: Vec<usize>,
    data_offsets: [u64; 2],
}

impl TensorFile {
    /// Writes the whole file.
    pub fn write_to(&self, out: &mut impl Write) -> Result<()> {
        let mut header = serde_json::Map::new();
        if !self.metadata.is_empty() {
            header.insert("__metadata__".to_owned(), to_json(&self.metadata)?);
        }
        let mut end = 0u64;
        for (name, tensor) in &self.tensors {
            let start = end;
            end += tensor.bytes.len() as u64;
            let entry = Entry { dtype: tensor.element, shape: tensor.shape.clone(), data_offsets: [start, end] };
            header.insert(name.clone(), to_json(&entry)?);
        }
        let mut header = serde_json::to_vec(&header).map_err(|e| invalid(e.to_string()))?;
        // Padded with spaces, so that the data begins at a multiple of eight bytes.
        header.resize(header.len().next_multiple_of(8), b' ');
        out.write_all(&(header.len() as u64).to_le_bytes())?;
        out.write_all(&header)?;
        for tensor in self.tensors.values() {
            out.write_all(&tensor.bytes)?;
        }
        Ok(())
    }

    /// Reads a whole file; refuses anything that is cut off, overlaps, leaves gaps or goes on after its end.
    pub fn read_from(input: &mut impl Read) -> Result<Self> {
        let length = u64::from_le_bytes(read_bytes(input, 8, "its length")?.try_into().unwrap_or_default());
        if length > LONGEST_HEADER {
            return Err(invalid(format!("its header claims {length} bytes")));
        }
        let header = read_bytes(input, length, "its header")?;
        let header: BTreeMap<String, serde_json::Value> =
            serde_json::from_slice(&header).map_err(|e| invalid(format!("its header is not JSON: {e}")))?;
        let mut metadata = BTreeMap::new();
        let mut entries = vec![];
        for (name, value) in header {
            if name == "__metadata__" {
                metadata = serde_json::from_value(value).map_err(|e| invalid(format!("its metadata: {e}")))?;
            } else {
                let entry: Entry =
                    serde_json::from_value(value).map_err(|e| invalid(format!("its entry {name}: {e}")))?;
                entries.push((name, entry));
            }
        }
        entries.sort_by_key(|(_, entry)| entry.data_offsets);
        let (mut tensors, mut end) = (BTreeMap::new(), 0);
        for (name, entry) in entries {
            let [start, stop] = entry.data_offsets;
            let elements = entry.shape.iter().try_fold(entry.dtype.size(), |n, &side| n.checked_mul(side));
            if start != end || Some(stop) != elements.and_then(|n| start.checked_add(n as u64)) {
                let (dtype, shape) = (entry.dtype, &entry.shape);
                return Err(invalid(format!("{name}, {dtype:?} {shape:?}, does not fit its bytes {start}..{stop}")));
            }
            let bytes = read_bytes(input, stop - start, &name)?;
            tensors.insert(name, HostTensor { element: entry.dtype, shape: entry.shape, bytes });
            end = stop;
        }
        if input.read(&mut [0])? != 0 {
            return Err(invalid("it goes on after its last tensor".to_owned()));
        }
        Ok(Self { metadata, tensors })
    }

    /// Names of the tensors.
    pub(crate) fn names(&self) -> HashSet<&str> {
        self.tensors.keys().map(String::as_str).collect()
    }
}

/// Reads as many bytes as there should be, without believing a large number before the bytes are there.
fn read_bytes(input: &mut impl Read, count: u64, what: &str) -> Result<Vec<u8>> {
    let mut bytes = vec![];
    input.take(count).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == count {
        Ok(bytes)
    } else {
        Err(invalid(format!("it ends within {what}, after {} of {count} bytes", bytes.len())))
    }
}

fn to_json(value: &impl Serialize) -> Result<serde_json::Value> {
    serde_json::to_value(value).map_err(|e| invalid(e.to_string()))
}

fn invalid(reason: String) -> AgentError {
    AgentError::Format { what: "safetensors file", reason }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::Random;

    fn file() -> TensorFile {
        let mut file = TensorFile::default();
        file.metadata.insert("note".to_owned(), "{\"a\": 1}".to_owned());
        let values = Tensor::from_slice(&[1.0f32, -2.5, 3.0, 0.0, 5.0, 6.0]).view([2, 3]);
        file.tensors.insert("b.weight".to_owned(), HostTensor::from_tensor(&values).unwrap());
        let bytes = HostTensor { element: ElementType::U8, shape: vec![3], bytes: vec![1, 2, 3] };
        file.tensors.insert("a".to_owned(), bytes);
        let scalar = HostTensor { element: ElementType::F64, shape: vec![], bytes: 1.5f64.to_le_bytes().to_vec() };
        file.tensors.insert("z".to_owned(), scalar);
        file
    }

    fn bytes(file: &TensorFile) -> Vec<u8> {
        let mut bytes = vec![];
        file.write_to(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        let read = TensorFile::read_from(&mut &bytes(&file())[..]).unwrap();
        assert_eq!(read, file());
        assert_eq!(read.tensors["b.weight"].tensor().unwrap().double_value(&[0, 1]), -2.5);
        assert_eq!(read.tensors["z"].tensor().unwrap().double_value(&[]), 1.5);
    }

    #[test]
    fn cut_or_lengthened_files_are_refused_with_a_sentence() {
        let whole = bytes(&file());
        for length in 0..whole.len() {
            let error = TensorFile::read_from(&mut &whole[..length]).unwrap_err().to_string();
            assert!(error.starts_with("not a valid safetensors file: "), "{error}");
        }
        let longer = [&whole[..], &[0]].concat();
        assert!(TensorFile::read_from(&mut &longer[..]).unwrap_err().to_string().contains("goes on"));
    }

    #[test]
    fn random_damage_never_panics_and_never_allocates_what_is_not_there() {
        let whole = bytes(&file());
        let mut random = Random::seed_from_u64(5);
        for _ in 0..20_000 {
            let mut damaged = whole.clone();
            for _ in 0..=random.random_range(0..3) {
                let at = random.random_range(0..damaged.len());
                damaged[at] = random.random::<u8>();
            }
            let _ = TensorFile::read_from(&mut &damaged[..]);
        }
    }
}
