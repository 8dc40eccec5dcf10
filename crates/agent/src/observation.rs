//! Observations and their conversion to a network's input.

pub use envs::ObservationKind;
use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor};

use crate::error::Result;

/// Element type of tensors of observations.
pub fn tensor_kind(kind: ObservationKind) -> Kind {
    match kind {
        ObservationKind::U8 => Kind::Uint8,
        ObservationKind::F32 => Kind::Float,
    }
}

/// Shape and element type of an environment's observations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservationSpec {
    /// `[height, width]` or `[height, width, channels]` of an image, `[n]` of a flat observation.
    pub shape: Vec<usize>,
    /// Element type.
    pub kind: ObservationKind,
}

impl ObservationSpec {
    /// Number of values of one observation.
    pub fn values(&self) -> usize {
        self.shape.iter().product()
    }

    /// Height, width and channels of an image; `None` for a flat observation.
    fn image(&self) -> Option<[usize; 3]> {
        match self.shape[..] {
            [height, width] => Some([height, width, 1]),
            [height, width, channels] => Some([height, width, channels]),
            _ => None,
        }
    }

    /// Bytes of one observation.
    pub fn bytes(&self) -> usize {
        self.values() * self.kind.size()
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

/// Shape of a network's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputShape {
    /// An image.
    Image(ImageShape),
    /// A vector of this many values.
    Flat(i64),
}

/// Turns the bytes of observations into a network's input.
#[derive(Clone, Debug)]
pub struct ObservationInput {
    spec: ObservationSpec,
}

impl ObservationInput {
    /// The input for observations of a valid `spec`.
    pub fn new(spec: ObservationSpec) -> Self {
        Self { spec }
    }

    /// Shape and element type of an environment's observations.
    pub fn spec(&self) -> &ObservationSpec {
        &self.spec
    }

    /// Whether the network sees bytes, divided by 255.
    pub fn takes_bytes(&self) -> bool {
        self.spec.kind == ObservationKind::U8
    }

    /// Shape of the network's input.
    pub fn shape(&self) -> InputShape {
        match self.spec.image().map(|image| image.map(|side| side as i64)) {
            Some([height, width, channels]) => InputShape::Image(ImageShape { channels, height, width }),
            None => InputShape::Flat(self.spec.values() as i64),
        }
    }

    /// Copies observations to one tensor `[frames, values]` of their own element type.
    pub fn upload(&self, bytes: &[u8], frames: usize, device: Device) -> Result<Tensor> {
        let size = [frames as i64, self.spec.values() as i64];
        Ok(Tensor::f_from_data_size(bytes, &size, tensor_kind(self.spec.kind))?.f_to_device(device)?)
    }

    /// Converts `[frames, values]` as uploaded to `[frames, channels, height, width]` or `[frames, values]` in f32.
    pub fn prepare(&self, uploaded: &Tensor) -> Result<Tensor> {
        let frames = uploaded.size()[0];
        let values = uploaded.f_to_kind(Kind::Float)?;
        let values = match self.spec.kind {
            ObservationKind::U8 => values.f_div_scalar(255.0)?,
            ObservationKind::F32 => values,
        };
        let Some(image) = self.spec.image() else { return Ok(values) };
        let [height, width, channels] = image.map(|side| side as i64);
        // Channels-last strides over the same bytes: convolutions choose their layout by them.
        let strides = [height * width * channels, 1, width * channels, channels];
        Ok(values.f_as_strided([frames, channels, height, width], strides, None)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_scaled_and_channels_come_first() {
        let spec = ObservationSpec { shape: vec![1, 2, 3], kind: ObservationKind::U8 };
        let input = ObservationInput::new(spec);
        assert_eq!(input.shape(), InputShape::Image(ImageShape { channels: 3, height: 1, width: 2 }));
        let raw = input.upload(&[0, 51, 102, 153, 204, 255], 1, Device::Cpu).unwrap();
        let image = input.prepare(&raw).unwrap();
        assert_eq!(image.size(), [1, 3, 1, 2]);
        let values: Vec<f32> = image.reshape([-1]).try_into().unwrap();
        assert_eq!(values, [0.0, 0.6, 0.2, 0.8, 0.4, 1.0]);
    }

    #[test]
    fn flat_floats_are_unchanged() {
        let input = ObservationInput::new(ObservationSpec { shape: vec![2], kind: ObservationKind::F32 });
        assert_eq!(input.shape(), InputShape::Flat(2));
        let bytes: Vec<u8> = [1.5f32, -3.0].iter().flat_map(|v| v.to_le_bytes()).collect();
        let raw = input.upload(&bytes, 1, Device::Cpu).unwrap();
        let values: Vec<f32> = input.prepare(&raw).unwrap().reshape([-1]).try_into().unwrap();
        assert_eq!(values, [1.5, -3.0]);
    }

    #[test]
    fn images_are_read_from_the_middle_of_a_larger_tensor() {
        let input = ObservationInput::new(ObservationSpec { shape: vec![2, 2], kind: ObservationKind::F32 });
        let all = Tensor::from_slice(&[9.0f32, 9.0, 9.0, 1.0, 2.0, 3.0, 4.0]);
        let image = input.prepare(&all.narrow(0, 3, 4).view([1, 4])).unwrap();
        assert_eq!(Vec::<f32>::try_from(image.reshape([-1])).unwrap(), [1.0, 2.0, 3.0, 4.0]);
    }
}
