//! Observations and their conversion to a network's input.

use std::ops::Range;

pub use envs::{ObservationKind, ObservationPart};
use tch::{Device, Kind, Tensor};

use crate::error::Result;

/// Element type of tensors of observations.
pub fn tensor_kind(kind: ObservationKind) -> Kind {
    match kind {
        ObservationKind::U8 => Kind::Uint8,
        ObservationKind::F32 => Kind::Float,
    }
}

/// The arrays that an environment's observations consist of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservationSpec {
    /// Each has networks of its own. A single one has no name.
    pub parts: Vec<ObservationPart>,
}

impl ObservationSpec {
    /// Observations of a single array.
    ///
    /// Its shape is `[height, width]` or `[height, width, channels]` for an image, `[n]` for a vector.
    pub fn array(shape: Vec<usize>, kind: ObservationKind) -> Self {
        Self { parts: vec![ObservationPart { name: String::new(), shape, kind }] }
    }

    /// Element type of the observation as a whole: several parts are bytes together.
    pub fn kind(&self) -> ObservationKind {
        match &self.parts[..] {
            [part] => part.kind,
            _ => ObservationKind::U8,
        }
    }

    /// Number of values of one observation.
    pub fn values(&self) -> usize {
        self.bytes() / self.kind().size()
    }

    /// Bytes of one observation.
    pub fn bytes(&self) -> usize {
        ObservationPart::total_bytes(&self.parts)
    }

    /// Places of the floats in an observation's bytes.
    pub fn floats(&self) -> Vec<Range<usize>> {
        let places = ObservationPart::places(&self.parts).into_iter().zip(&self.parts);
        places.filter(|(_, part)| part.kind == ObservationKind::F32).map(|(place, _)| place).collect()
    }
}

/// Channels, rows and columns of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageShape {
    /// Channels.
    pub channels: i64,
    /// Rows.
    pub height: i64,
    /// Columns.
    pub width: i64,
}

impl ImageShape {
    /// Number of values.
    pub fn values(&self) -> i64 {
        self.channels * self.height * self.width
    }
}

/// Input shape of one part's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputShape {
    /// An image.
    Image(ImageShape),
    /// A vector of this many values.
    Flat(i64),
}

impl InputShape {
    fn of(part: &ObservationPart) -> Self {
        let sides: Vec<i64> = part.shape.iter().map(|&side| side as i64).collect();
        match sides[..] {
            [height, width] => Self::Image(ImageShape { channels: 1, height, width }),
            [height, width, channels] => Self::Image(ImageShape { channels, height, width }),
            _ => Self::Flat(sides.iter().product()),
        }
    }
}

/// One part of an observation as networks see it.
#[derive(Clone, Debug)]
pub struct InputPart {
    /// The part's name; empty if there is only one.
    pub name: String,
    /// Shape of the networks' input.
    pub shape: InputShape,
    kind: ObservationKind,
    /// Where its bytes are in an observation.
    place: Range<usize>,
}

impl InputPart {
    /// This part of `[frames, values]` as uploaded, `[frames, own values]` of its element type.
    fn values(&self, uploaded: &Tensor) -> Result<Tensor> {
        let bytes = uploaded.f_narrow(1, self.place.start as i64, self.place.len() as i64)?;
        Ok(match self.kind {
            ObservationKind::U8 => bytes,
            ObservationKind::F32 => bytes.f_view_dtype(Kind::Float)?,
        })
    }

    /// Converts `[frames, own values]` to `[frames, channels, height, width]` or `[frames, values]` in f32.
    fn prepare(&self, values: &Tensor) -> Result<Tensor> {
        let frames = values.size()[0];
        let values = values.f_to_kind(Kind::Float)?;
        let values = match self.kind {
            ObservationKind::U8 => values.f_div_scalar(255.0)?,
            ObservationKind::F32 => values,
        };
        let InputShape::Image(image) = self.shape else { return Ok(values) };
        let ImageShape { channels, height, width } = image;
        // Channels-last strides over the same bytes: convolutions choose their layout by them.
        let strides = [image.values(), 1, width * channels, channels];
        Ok(values.f_contiguous()?.f_as_strided([frames, channels, height, width], strides, None)?)
    }
}

/// Turns the bytes of observations into the networks' input.
#[derive(Clone, Debug)]
pub struct ObservationInput {
    spec: ObservationSpec,
    parts: Vec<InputPart>,
}

impl ObservationInput {
    /// The input for observations of a valid `spec`.
    pub fn new(spec: ObservationSpec) -> Self {
        let places = ObservationPart::places(&spec.parts).into_iter().zip(&spec.parts);
        let part = |(place, part): (_, &ObservationPart)| InputPart {
            name: part.name.clone(),
            shape: InputShape::of(part),
            kind: part.kind,
            place,
        };
        Self { parts: places.map(part).collect(), spec }
    }

    /// The arrays of an environment's observations.
    pub fn spec(&self) -> &ObservationSpec {
        &self.spec
    }

    /// The parts, each of which networks see on its own.
    pub fn parts(&self) -> &[InputPart] {
        &self.parts
    }

    /// The shape of observations that are a single image of bytes, which the networks see divided by 255.
    pub fn byte_image(&self) -> Option<ImageShape> {
        match &self.parts[..] {
            [InputPart { shape: InputShape::Image(image), kind: ObservationKind::U8, .. }] => Some(*image),
            _ => None,
        }
    }

    /// Copies observations to one tensor `[frames, values]` of their own element type.
    pub fn upload(&self, bytes: &[u8], frames: usize, device: Device) -> Result<Tensor> {
        let size = [frames as i64, self.spec.values() as i64];
        Ok(Tensor::f_from_data_size(bytes, &size, tensor_kind(self.spec.kind()))?.f_to_device(device)?)
    }

    /// Converts observations as uploaded, `[frames, values]`, to each part in f32.
    ///
    /// A part is `[frames, channels, height, width]` or `[frames, values]`.
    pub fn prepare(&self, uploaded: &Tensor) -> Result<Vec<Tensor>> {
        if let [part] = &self.parts[..] {
            return Ok(vec![part.prepare(uploaded)?]);
        }
        self.parts.iter().map(|part| part.prepare(&part.values(uploaded)?)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_scaled_and_channels_come_first() {
        let input = ObservationInput::new(ObservationSpec::array(vec![1, 2, 3], ObservationKind::U8));
        assert_eq!(input.byte_image(), Some(ImageShape { channels: 3, height: 1, width: 2 }));
        let raw = input.upload(&[0, 51, 102, 153, 204, 255], 1, Device::Cpu).unwrap();
        let image = input.prepare(&raw).unwrap().remove(0);
        assert_eq!(image.size(), [1, 3, 1, 2]);
        let values: Vec<f32> = image.reshape([-1]).try_into().unwrap();
        assert_eq!(values, [0.0, 0.6, 0.2, 0.8, 0.4, 1.0]);
    }

    #[test]
    fn flat_floats_are_unchanged() {
        let input = ObservationInput::new(ObservationSpec::array(vec![2], ObservationKind::F32));
        assert_eq!(input.parts()[0].shape, InputShape::Flat(2));
        let bytes: Vec<u8> = [1.5f32, -3.0].iter().flat_map(|v| v.to_le_bytes()).collect();
        let raw = input.upload(&bytes, 1, Device::Cpu).unwrap();
        let values: Vec<f32> = input.prepare(&raw).unwrap()[0].reshape([-1]).try_into().unwrap();
        assert_eq!(values, [1.5, -3.0]);
    }

    #[test]
    fn images_are_read_from_the_middle_of_a_larger_tensor() {
        let input = ObservationInput::new(ObservationSpec::array(vec![2, 2], ObservationKind::F32));
        let all = Tensor::from_slice(&[9.0f32, 9.0, 9.0, 1.0, 2.0, 3.0, 4.0]);
        let image = input.prepare(&all.narrow(0, 3, 4).view([1, 4])).unwrap().remove(0);
        assert_eq!(Vec::<f32>::try_from(image.reshape([-1])).unwrap(), [1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn parts_are_read_each_at_its_place_with_its_type() {
        let part = |name: &str, shape: &[usize], kind| ObservationPart { name: name.into(), shape: shape.into(), kind };
        let spec = ObservationSpec {
            parts: vec![
                part("picture", &[1, 3], ObservationKind::U8),
                part("map", &[1, 2, 2], ObservationKind::F32),
                part("touch", &[1], ObservationKind::U8),
            ],
        };
        // Three bytes and one of padding, 16 bytes, one byte and three of padding.
        assert_eq!((spec.bytes(), spec.floats().len(), spec.floats().first()), (24, 1, Some(&(4..20))));
        let input = ObservationInput::new(spec);
        assert_eq!(input.byte_image(), None);
        let frame = |first: f32| {
            let map = [1.5f32, -2.0, 3.0, first].iter().flat_map(|value| value.to_le_bytes()).collect();
            [vec![0, 51, 255, 9], map, vec![102, 9, 9, 9]].concat()
        };
        let raw = input.upload(&[frame(7.0), frame(8.0)].concat(), 2, Device::Cpu).unwrap();
        let prepared = input.prepare(&raw).unwrap();
        let values = |part: usize| Vec::<f32>::try_from(prepared[part].reshape([-1])).unwrap();
        assert_eq!(values(0), [0.0, 0.2, 1.0, 0.0, 0.2, 1.0]);
        assert_eq!(prepared[1].size(), [2, 2, 1, 2]);
        assert_eq!(values(1), [1.5, 3.0, -2.0, 7.0, 1.5, 3.0, -2.0, 8.0]);
        assert_eq!(values(2), [0.4, 0.4]);
    }
}
