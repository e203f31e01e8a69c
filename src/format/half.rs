//! Half-precision numbers, IEEE's f16 and Google's bf16, as the bits that files hold. Widening is exact, narrowing rounds
//! to the nearest and ties to even; neither depends on what the processor offers.

/// The value of an f16; NaN of any payload is one NaN.
pub fn f32_from_f16(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let magnitude = u32::from(bits & 0x7fff);
    let value = match magnitude {
        // Subnormal: a count of 2^-24.
        0..0x0400 => (magnitude as f32 * 2f32.powi(-24)).to_bits(),
        // The exponent's bias grows from 15 to 127.
        0x0400..0x7c00 => (magnitude << 13) + (112 << 23),
        0x7c00 => f32::INFINITY.to_bits(),
        _ => f32::NAN.to_bits(),
    };
    f32::from_bits(sign | value)
}

/// The nearest f16; from 65520 on that is infinity.
pub fn f16_from_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    sign | match magnitude {
        // Below 2^-14 an f16 counts 2^-24, which is the last place of 0.5: the addition rounds.
        0..0x3880_0000 => ((f32::from_bits(magnitude) + 0.5).to_bits() - 0.5f32.to_bits()) as u16,
        // Half of the last place, less one where the kept part is even; a carry runs on into the exponent.
        0x3880_0000..0x477f_f000 => ((magnitude - (112 << 23) + 0x0fff + (magnitude >> 13 & 1)) >> 13) as u16,
        0x477f_f000..=0x7f80_0000 => 0x7c00,
        _ => 0x7e00,
    }
}

/// The value of a bf16.
pub fn f32_from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest bf16; NaN stays NaN.
pub fn bf16_from_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_comes_back() {
        for bits in 0..=u16::MAX {
            let value = f32_from_f16(bits);
            if value.is_nan() {
                assert!(bits & 0x7fff > 0x7c00, "{bits:#06x}");
                assert_eq!(f16_from_f32(value) & 0x7fff, 0x7e00);
            } else {
                assert_eq!(f16_from_f32(value), bits, "{bits:#06x}");
            }
        }
        for (bits, value) in [(0x0001, 2f32.powi(-24)), (0x3555, 0.333_251_95), (0x7bff, 65504.0)] {
            assert_eq!(f32_from_f16(bits), value);
        }
    }

    #[test]
    fn every_bf16_comes_back() {
        for bits in 0..=u16::MAX {
            let value = f32_from_bf16(bits);
            assert!(value.is_nan() || bf16_from_f32(value) == bits, "{bits:#06x}");
        }
        assert!(f32_from_bf16(bf16_from_f32(f32::from_bits(0x7f80_0001))).is_nan());
    }

    /// Halfway between neighbours the even one is taken, and a little to either side the nearer.
    #[test]
    fn narrowing_takes_the_nearest_and_ties_go_to_even() {
        let check = |narrow: fn(f32) -> u16, widen: fn(u16) -> f32, low: u16| {
            let (below, above) = (widen(low), widen(low + 1));
            let half = ((f64::from(below) + f64::from(above)) / 2.0) as f32;
            assert_eq!(narrow(half), low + (low & 1), "{low:#06x}");
            assert_eq!(narrow(half.next_down()), low, "{low:#06x}");
            assert_eq!(narrow(half.next_up()), low + 1, "{low:#06x}");
            assert_eq!(narrow(-half), 0x8000 | (low + (low & 1)), "{low:#06x}");
        };
        (0..0x7bff).for_each(|low| check(f16_from_f32, f32_from_f16, low));
        // bf16's own subnormals are f32's.
        (0..0x7f7f).for_each(|low| check(bf16_from_f32, f32_from_bf16, low));
        assert_eq!(f16_from_f32(65519.996), 0x7bff);
        assert_eq!(f16_from_f32(65520.0), 0x7c00);
        assert_eq!(f16_from_f32(f32::INFINITY), 0x7c00);
        assert_eq!(f16_from_f32(f32::NEG_INFINITY), 0xfc00);
        assert_eq!(bf16_from_f32(f32::MAX), 0x7f80);
    }
}
