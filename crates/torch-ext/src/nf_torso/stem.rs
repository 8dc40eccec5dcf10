//! How the stem's kernels divide an image: into bands that fit shared memory, and rows of taps.

use std::fmt::Write;

use super::TorsoSpec;

/// Shared memory of a thread block on every supported GPU.
const SHARED_BYTES: i64 = 96 * 1024;
/// Most shared memory that one band may take.
const MAX_BAND_BYTES: i64 = 40 * 1024;

/// Taps whose weights the forward kernel keeps in registers.
const TAPS_IN_REGISTERS: i64 = 64;

/// Taps whose gradient one thread block computes.
const TAPS_PER_GROUP: i64 = 64;

/// A stem and the images that it reads.
///
/// The kernels read two bytes at once, so every patch must begin at an even place. Hence each row of taps has one or two
/// unused ones before the pixels, the very first of which stands for the bias, and more behind them to make a multiple
/// of eight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StemShape {
    outputs: i64,
    channels: i64,
    image_height: i64,
    image_width: i64,
    /// Rows of output pixels per band.
    band_rows: i64,
}

impl StemShape {
    /// Returns the shape, or why the images or the stem are not supported.
    pub fn new(spec: &TorsoSpec) -> Result<Self, String> {
        let (outputs, channels, image_height, image_width) =
            (spec.stem.outputs, spec.stem.inputs, spec.height, spec.width);
        if !(outputs == 32 || outputs == 64) {
            return Err(format!("the stem has {outputs} channels, not 32 or 64"));
        }
        let image = format!("images of {image_height}x{image_width}x{channels}");
        if (image_width * channels) % 4 != 0 {
            return Err(format!("{image} have rows of {} bytes, which is not a multiple of 4", image_width * channels));
        }
        let bands_of = |band_rows| Self { outputs, channels, image_height, image_width, band_rows };
        let whole = bands_of((image_height + 3) / 4);
        let largest = (1..=whole.height()).rev().map(bands_of).find(Self::fits);
        let bands = largest.ok_or_else(|| format!("{image} do not fit the stem's kernel"))?.bands();
        Ok(bands_of((whole.height() + bands - 1) / bands))
    }

    /// Returns the rows of output pixels.
    pub fn height(&self) -> i64 {
        (self.image_height + 3) / 4
    }

    /// Returns the columns of output pixels.
    pub fn width(&self) -> i64 {
        (self.image_width + 3) / 4
    }

    /// Returns the bands of an image.
    pub fn bands(&self) -> i64 {
        (self.height() + self.band_rows - 1) / self.band_rows
    }

    /// Returns the bytes of shared memory that a band needs.
    ///
    /// The first row of output pixels needs seven rows of the image and each further one four more. One extra row is for
    /// the taps that pad.
    pub fn band_bytes(&self) -> i64 {
        round_up((4 * self.band_rows + 4) * self.row() + self.margin(), 16)
    }

    /// Returns the taps of all rows.
    pub fn taps(&self) -> i64 {
        round_up(7 * self.row_taps(), 16)
    }

    /// Returns the groups of taps whose gradients different thread blocks compute.
    pub fn tap_groups(&self) -> i64 {
        (self.taps() + TAPS_PER_GROUP - 1) / TAPS_PER_GROUP
    }

    /// Returns the bytes of shared memory in which the forward kernel keeps the weights.
    pub fn shared_weights(&self) -> i64 {
        if self.taps() > TAPS_IN_REGISTERS { 2 * self.taps() * self.outputs } else { 0 }
    }

    /// Returns the bytes of shared memory for the weights' gradient.
    ///
    /// They hold two bands, and then in the same place the sums.
    pub fn shared_gradient(&self) -> i64 {
        (2 * self.band_bytes()).max(4 * TAPS_PER_GROUP * self.outputs)
    }

    /// Returns the definitions with which the kernels are compiled.
    pub fn definitions(&self) -> String {
        let values = [
            ("STEM_CHANNELS", self.outputs),
            ("IMAGE_HEIGHT", self.image_height),
            ("IMAGE_WIDTH", self.image_width),
            ("IMAGE_CHANNELS", self.channels),
            ("BAND_ROWS", self.band_rows),
            ("BAND_BYTES", self.band_bytes()),
            ("ROW", self.row()),
            ("MARGIN", self.margin()),
            ("FIRST_TAP", self.first_tap()),
            ("ROW_TAPS", self.row_taps()),
            ("TAPS", self.taps()),
        ];
        values.iter().fold(String::new(), |mut text, (name, value)| {
            let _ = writeln!(text, "#define {name} {value}");
            text
        })
    }

    fn fits(&self) -> bool {
        let rest = SHARED_BYTES - self.shared_weights();
        self.band_bytes() <= rest.min(MAX_BAND_BYTES)
    }

    /// Returns the taps in front of a row's pixels.
    fn first_tap(&self) -> i64 {
        2 - self.channels % 2
    }

    /// Returns the taps of a row of the kernel.
    fn row_taps(&self) -> i64 {
        round_up(self.first_tap() + 7 * self.channels, 8)
    }

    /// Returns the zeros in front of a row of a band: three pixels and the taps around them.
    fn margin(&self) -> i64 {
        round_up(3 * self.channels + 8, 16)
    }

    /// Returns the bytes of a row of a band.
    fn row(&self) -> i64 {
        self.margin() + round_up(self.image_width * self.channels, 16)
    }
}

fn round_up(value: i64, multiple: i64) -> i64 {
    (value + multiple - 1) / multiple * multiple
}

#[cfg(test)]
mod tests {
    use super::super::ConvSpec;
    use super::*;

    fn shape(outputs: i64, [height, width, channels]: [i64; 3]) -> Result<StemShape, String> {
        let stem = ConvSpec { weight: 0, gain: 0, bias: 0, inputs: channels, outputs, scale: 1.0 };
        let (blocks, parameters) = (vec![], vec![]);
        let (branch_scale, output_scale, length) = (1.0, 1.0, 0);
        StemShape::new(&TorsoSpec { height, width, stem, blocks, branch_scale, output_scale, length, parameters })
    }

    #[test]
    fn only_images_too_large_for_shared_memory_are_split_into_bands() {
        let gray = shape(64, [210, 160, 1]).unwrap();
        assert_eq!((gray.bands(), gray.band_bytes(), gray.taps(), gray.shared_weights()), (1, 38_032, 64, 0));
        assert_eq!(shape(64, [84, 84, 3]).map(|shape| (shape.bands(), shape.tap_groups())), Ok((1, 3)));
        assert_eq!(shape(64, [210, 160, 3]).map(|shape| (shape.bands(), shape.tap_groups())), Ok((3, 3)));
        assert_eq!(shape(64, [105, 80, 4]).map(|shape| (shape.bands(), shape.tap_groups())), Ok((1, 4)));
    }

    /// The kernels check nothing, so what they read must be within a band, and what they use within shared memory.
    #[test]
    fn patches_are_within_bands_and_bands_within_shared_memory() {
        let mut supported = 0;
        for (outputs, channels) in [32, 64].into_iter().flat_map(|outputs| (1..=16).map(move |c| (outputs, c))) {
            for (height, width) in [(7, 8), (16, 36), (84, 84), (105, 80), (210, 160), (300, 400)] {
                let Ok(shape) = shape(outputs, [height, width, channels]) else { continue };
                let first = shape.margin() - 3 * channels - shape.first_tap();
                let last_patch = first + (shape.band_rows - 1) * 4 * shape.row() + (shape.width() - 1) * 4 * channels;
                // Eight taps at once, of a row below the kernel's if an odd number of eights is filled up.
                let eights = shape.row_taps() / 8;
                let last_taps = (shape.taps() / 8 - 1) / eights * shape.row() + (shape.taps() / 8 - 1) % eights * 8;
                let end_of_row = 6 * shape.row() + (eights - 1) * 8;
                assert!(first >= 0 && last_patch + last_taps.max(end_of_row) + 8 <= shape.band_bytes(), "{shape:?}");
                assert!(first % 2 == 0 && shape.row() % 16 == 0 && shape.band_bytes() % 16 == 0, "{shape:?}");
                // Right of the pixels are at least three that are zero, next to or in the next row.
                assert!(shape.row() - width * channels >= 3 * channels, "{shape:?}");
                assert!(shape.band_bytes() + shape.shared_weights() <= SHARED_BYTES, "{shape:?}");
                assert!(shape.shared_gradient() <= SHARED_BYTES, "{shape:?}");
                let bands = shape.bands() * shape.band_rows;
                assert!((shape.height()..shape.height() + shape.band_rows).contains(&bands), "{shape:?}");
                supported += 1;
            }
        }
        assert!(supported > 100, "{supported}");
    }

    #[test]
    fn refuses_what_has_no_kernel() {
        for (outputs, image, reason) in [
            (48, [84, 84, 3], "48 channels, not 32 or 64"),
            (64, [7, 5, 3], "images of 7x5x3 have rows of 15 bytes, which is not a multiple of 4"),
            (64, [84, 84, 20], "images of 84x84x20 do not fit"),
            (64, [9, 8000, 1], "images of 9x8000x1 do not fit"),
        ] {
            let error = shape(outputs, image).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
