//! Checks the values of one array, whose bytes are there.

use arrow_schema::DataType;

use super::check::Validity;

pub const VIEW_BYTES: usize = 16;
/// Bytes of a value that stand in its view; a longer one is in a buffer.
pub const INLINE_BYTES: usize = 12;

/// Whether every text that is not null is UTF-8. `used` are all texts together, from offset `start` on.
pub fn are_texts(
    used: &[u8],
    start: usize,
    offsets: impl Iterator<Item = usize> + Clone,
    validity: &Validity,
) -> bool {
    if let Ok(text) = std::str::from_utf8(used)
        && offsets
            .clone()
            .all(|offset| text.is_char_boundary(offset - start))
    {
        return true;
    }
    // The content of a slot that is null does not count.
    let ends = offsets.clone().skip(1);
    validity.has_nulls()
        && offsets.zip(ends).enumerate().all(|(index, (begin, end))| {
            !validity.is_valid(index)
                || std::str::from_utf8(&used[begin - start..end - start]).is_ok()
        })
}

/// Looks at the views of null slots as well: casts of Arrow's read them.
pub fn check_views(
    views: &[u8],
    data: &[&[u8]],
    validity: &Validity,
    is_text: bool,
) -> Result<(), &'static str> {
    for (index, view) in views.chunks_exact(VIEW_BYTES).enumerate() {
        let value = view_value(view, data)?;
        if !validity.is_valid(index) {
            continue;
        }
        if value.len() > INLINE_BYTES && value[..4] != view[4..8] {
            return Err("a view begins with other bytes than its value");
        }
        if value.len() <= INLINE_BYTES && view[4 + value.len()..].iter().any(|byte| *byte != 0) {
            return Err("a view has bytes behind its value");
        }
        if is_text && std::str::from_utf8(value).is_err() {
            return Err("a text is not UTF-8");
        }
    }
    Ok(())
}

fn view_value<'a>(view: &'a [u8], data: &[&'a [u8]]) -> Result<&'a [u8], &'static str> {
    let word = |at: usize| i32::from_le_bytes([view[at], view[at + 1], view[at + 2], view[at + 3]]);
    let Ok(length) = usize::try_from(word(0)) else {
        return Err("a view has a negative length");
    };
    if length <= INLINE_BYTES {
        return Ok(&view[4..4 + length]);
    }
    let buffer = usize::try_from(word(8))
        .ok()
        .and_then(|index| data.get(index));
    let (Some(buffer), Ok(offset)) = (buffer, usize::try_from(word(12))) else {
        return Err("a view is of a buffer that is not there");
    };
    buffer
        .get(offset..offset + length)
        .ok_or("a view ends outside of its buffer")
}

/// Whether every index that is not null is inside of a dictionary of this length.
pub fn are_indices(kind: &DataType, indices: &[u8], length: usize, validity: &Validity) -> bool {
    let width = kind.primitive_width().unwrap_or(1);
    let is_signed = kind.is_signed_integer();
    indices
        .chunks_exact(width)
        .enumerate()
        .all(|(index, bytes)| {
            let mut wide = [0; 8];
            wide[..width].copy_from_slice(bytes);
            let is_negative = is_signed && bytes[width - 1] >= 128;
            !validity.is_valid(index) || (!is_negative && u64::from_le_bytes(wide) < length as u64)
        })
}

pub fn all_i32(data: &[u8], validity: &Validity, is_right: impl Fn(i32) -> bool) -> bool {
    chunks::<4>(data, validity).all(|bytes| is_right(i32::from_le_bytes(bytes)))
}

pub fn all_i64(data: &[u8], validity: &Validity, is_right: impl Fn(i64) -> bool) -> bool {
    chunks::<8>(data, validity).all(|bytes| is_right(i64::from_le_bytes(bytes)))
}

pub fn all_i128(data: &[u8], validity: &Validity, precision: u8) -> bool {
    chunks::<16>(data, validity).all(|bytes| fits(i128::from_le_bytes(bytes), precision))
}

/// Checks decimals, which have at most 38 digits in collections.
pub fn all_i256(data: &[u8], validity: &Validity, precision: u8) -> bool {
    chunks::<32>(data, validity).all(|bytes| {
        arrow_buffer::i256::from_le_bytes(bytes)
            .to_i128()
            .is_some_and(|value| fits(value, precision))
    })
}

pub fn fits(value: i128, precision: u8) -> bool {
    let end = 10i128.checked_pow(precision.into()).unwrap_or(i128::MAX);
    (-end < value) && (value < end)
}

fn chunks<'a, const WIDTH: usize>(
    data: &'a [u8],
    validity: &'a Validity<'a>,
) -> impl Iterator<Item = [u8; WIDTH]> + 'a {
    let values = data.chunks_exact(WIDTH).enumerate();
    values
        .filter(|(index, _)| validity.is_valid(*index))
        .filter_map(|(_, bytes)| bytes.try_into().ok())
}
