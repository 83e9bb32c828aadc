//! Checks the structure of a batch to the last byte, before anything relies on it: whatever passes here, Arrow's
//! reader in C++ reads from the log, and its full validation finds nothing wrong with it.

use std::collections::HashMap;
use std::slice::Iter;

use arrow_array::ArrayRef;
use arrow_schema::{DataType, TimeUnit};
use bytes::Bytes;

use super::Problem;
use super::layout::Layout;
use super::message::{Node, Parts};
use super::values;

/// The dictionaries of a stream, by number.
pub type Dictionaries = HashMap<i64, ArrayRef>;

/// Checks all columns; `parts` are as they were before they were compressed.
pub fn check(
    layouts: &[Layout],
    parts: &Parts,
    dictionaries: &Dictionaries,
) -> Result<(), Problem> {
    let mut checker = Checker {
        nodes: parts.nodes.iter(),
        buffers: parts.buffers.iter(),
        view_buffers: parts.view_buffers.iter(),
        dictionaries,
    };
    for layout in layouts {
        let node = checker.array(layout)?;
        if node.length != parts.rows {
            return malformed(format!(
                "a column has {} rows and the batch has {}",
                node.length, parts.rows
            ));
        }
    }
    let is_left = checker.nodes.len() + checker.buffers.len() > 0;
    if is_left {
        malformed("it has more buffers than its schema")
    } else {
        Ok(())
    }
}

struct Checker<'a> {
    nodes: Iter<'a, Node>,
    buffers: Iter<'a, Bytes>,
    view_buffers: Iter<'a, usize>,
    dictionaries: &'a Dictionaries,
}

/// Which slots of an array have values.
pub struct Validity<'a> {
    bits: Option<&'a [u8]>,
    pub length: usize,
}

impl Validity<'_> {
    pub fn is_valid(&self, index: usize) -> bool {
        self.bits
            .is_none_or(|bits| bits[index / 8] >> (index % 8) & 1 == 1)
    }

    pub fn has_nulls(&self) -> bool {
        self.bits.is_some()
    }
}

impl<'a> Checker<'a> {
    fn array(&mut self, layout: &Layout) -> Result<Node, Problem> {
        let Some(&node) = self.nodes.next() else {
            return malformed("it has fewer arrays than its schema");
        };
        if node.nulls > node.length {
            return malformed("an array has more nulls than slots");
        }
        if layout.kind == DataType::Null {
            return Ok(node);
        }
        let validity = self.validity(node)?;
        let length = node.length;
        match &layout.kind {
            DataType::Boolean => self.fixed(length.div_ceil(8)).map(drop),
            DataType::FixedSizeBinary(width) => {
                let width = positive(*width)?;
                self.fixed(times(length, width)?).map(drop)
            }
            DataType::Utf8 => self.texts::<4>(&validity, true),
            DataType::Binary => self.texts::<4>(&validity, false),
            DataType::LargeUtf8 => self.texts::<8>(&validity, true),
            DataType::LargeBinary => self.texts::<8>(&validity, false),
            DataType::Utf8View => self.views(&validity, true),
            DataType::BinaryView => self.views(&validity, false),
            DataType::List(_) => self.list::<4>(layout, length),
            DataType::Map(_, _) => self.map(layout, length),
            DataType::LargeList(_) => self.list::<8>(layout, length),
            DataType::FixedSizeList(_, size) => {
                let size = positive(*size)?;
                self.children(layout, times(length, size)?).map(drop)
            }
            DataType::Struct(_) => self.children(layout, length).map(drop),
            DataType::Dictionary(index, _) => self.dictionary(layout, index, &validity),
            kind => match kind.primitive_width() {
                Some(width) => {
                    let data = self.fixed(times(length, width)?)?;
                    check_values(kind, data, &validity)
                }
                None => malformed(format!("it has a column of type {kind}")),
            },
        }?;
        Ok(node)
    }

    fn validity(&mut self, node: Node) -> Result<Validity<'a>, Problem> {
        let buffer = self.buffer()?;
        if node.nulls == 0 {
            return Ok(Validity {
                bits: None,
                length: node.length,
            });
        }
        let Some(bits) = buffer.get(..node.length.div_ceil(8)) else {
            return malformed("the validity of an array is shorter than the array");
        };
        let validity = Validity {
            bits: Some(bits),
            length: node.length,
        };
        let whole: usize = bits[..node.length / 8]
            .iter()
            .map(|byte| byte.count_ones() as usize)
            .sum();
        let rest = (node.length / 8 * 8..node.length)
            .filter(|index| validity.is_valid(*index))
            .count();
        if node.length - whole - rest != node.nulls {
            return malformed("an array has another number of nulls than it says");
        }
        Ok(validity)
    }

    fn buffer(&mut self) -> Result<&'a [u8], Problem> {
        match self.buffers.next() {
            Some(buffer) => Ok(buffer),
            None => malformed("it has fewer buffers than its schema"),
        }
    }

    fn fixed(&mut self, size: usize) -> Result<&'a [u8], Problem> {
        match self.buffer()?.get(..size) {
            Some(data) => Ok(data),
            None => malformed("a buffer is shorter than its array"),
        }
    }

    /// Offsets that rise; the first and the last one.
    fn offsets<const WIDTH: usize>(
        &mut self,
        length: usize,
    ) -> Result<Offsets<'a, WIDTH>, Problem> {
        let buffer = self.buffer()?;
        if length == 0 {
            return Ok(Offsets { bytes: &[] });
        }
        let size = times(length.saturating_add(1), WIDTH)?;
        let Some(bytes) = buffer.get(..size) else {
            return malformed("the offsets of an array are fewer than its slots");
        };
        let offsets = Offsets { bytes };
        let mut before = 0;
        let mut rise = true;
        for offset in offsets.iter() {
            rise &= before <= offset;
            before = offset;
        }
        if rise {
            Ok(offsets)
        } else {
            malformed("the offsets of an array do not rise")
        }
    }

    fn texts<const WIDTH: usize>(
        &mut self,
        validity: &Validity,
        is_text: bool,
    ) -> Result<(), Problem> {
        let offsets = self.offsets::<WIDTH>(validity.length)?;
        let data = self.buffer()?;
        let Some(span) = offsets.span() else {
            return Ok(());
        };
        let Some(used) = data.get(span.clone()) else {
            return malformed("the offsets of an array end outside of its values");
        };
        if is_text && !values::are_texts(used, span.start, offsets.iter(), validity) {
            return malformed("a text is not UTF-8");
        }
        Ok(())
    }

    fn views(&mut self, validity: &Validity, is_text: bool) -> Result<(), Problem> {
        let views = self.fixed(times(validity.length, values::VIEW_BYTES)?)?;
        let Some(&count) = self.view_buffers.next() else {
            return malformed("it does not say how many buffers a column of views has");
        };
        if count > self.buffers.len() {
            return malformed("a column of views has fewer buffers than it says");
        }
        let data: Vec<&[u8]> = self
            .buffers
            .by_ref()
            .take(count)
            .map(|buffer| &buffer[..])
            .collect();
        values::check_views(views, &data, validity, is_text).or_else(malformed)
    }

    fn list<const WIDTH: usize>(&mut self, layout: &Layout, length: usize) -> Result<(), Problem> {
        let offsets = self.offsets::<WIDTH>(length)?;
        let needed = offsets.span().map_or(0, |span| span.end);
        self.children(layout, needed).map(drop)
    }

    fn map(&mut self, layout: &Layout, length: usize) -> Result<(), Problem> {
        let offsets = self.offsets::<4>(length)?;
        let needed = offsets.span().map_or(0, |span| span.end);
        let Some(keys) = self.nodes.as_slice().get(1) else {
            return malformed("a map has no keys");
        };
        let has_null_keys = keys.nulls > 0;
        let entries = self.children(layout, needed)?;
        if has_null_keys || entries.iter().any(|entries| entries.nulls > 0) {
            return malformed("a key of a map is null");
        }
        Ok(())
    }

    /// Children that each have at least so many slots.
    fn children(&mut self, layout: &Layout, needed: usize) -> Result<Vec<Node>, Problem> {
        let mut nodes = Vec::with_capacity(layout.children.len());
        for child in &layout.children {
            let node = self.array(child)?;
            if node.length < needed {
                return malformed("an array inside of another one has too few slots");
            }
            nodes.push(node);
        }
        Ok(nodes)
    }

    fn dictionary(
        &mut self,
        layout: &Layout,
        index: &DataType,
        validity: &Validity,
    ) -> Result<(), Problem> {
        let Some(width) = index.primitive_width() else {
            return malformed("the indices of a dictionary are no integers");
        };
        let indices = self.fixed(times(validity.length, width)?)?;
        let known = layout
            .dictionary
            .as_ref()
            .and_then(|of| self.dictionaries.get(&of.id));
        let Some(values) = known else {
            return Err(Problem::Unreadable(
                "a dictionary has not been sent".to_owned(),
            ));
        };
        if values::are_indices(index, indices, values.len(), validity) {
            Ok(())
        } else {
            malformed("an index is outside of its dictionary")
        }
    }
}

struct Offsets<'a, const WIDTH: usize> {
    bytes: &'a [u8],
}

impl<'a, const WIDTH: usize> Offsets<'a, WIDTH> {
    /// Reads the numbers as unsigned: a negative one is then larger than any buffer.
    fn iter(&self) -> impl Iterator<Item = usize> + Clone + use<'a, WIDTH> {
        self.bytes.chunks_exact(WIDTH).map(read::<WIDTH>)
    }

    /// From the first value to the end of the last one; `None` if there are no values.
    fn span(&self) -> Option<std::ops::Range<usize>> {
        let first = self.bytes.chunks_exact(WIDTH).next().map(read::<WIDTH>)?;
        let last = self.bytes.rchunks_exact(WIDTH).next().map(read::<WIDTH>)?;
        Some(first..last)
    }
}

fn read<const WIDTH: usize>(bytes: &[u8]) -> usize {
    let mut wide = [0; 8];
    wide[..WIDTH].copy_from_slice(&bytes[..WIDTH]);
    let number = u64::from_le_bytes(wide);
    let sign = 1u64 << (8 * WIDTH - 1);
    if number & sign != 0 {
        usize::MAX
    } else {
        number as usize
    }
}

/// Checks the values of these types as Arrow's full validation does.
fn check_values(kind: &DataType, data: &[u8], validity: &Validity) -> Result<(), Problem> {
    const DAY: i64 = 86_400;
    let day_of = |unit: &TimeUnit| match unit {
        TimeUnit::Second => DAY,
        TimeUnit::Millisecond => DAY * 1_000,
        TimeUnit::Microsecond => DAY * 1_000_000,
        TimeUnit::Nanosecond => DAY * 1_000_000_000,
    };
    let are_right = match kind {
        DataType::Date64 => values::all_i64(data, validity, |value| value % (DAY * 1_000) == 0),
        DataType::Time32(unit) => {
            let end = day_of(unit);
            values::all_i32(data, validity, |value| (0..end).contains(&i64::from(value)))
        }
        DataType::Time64(unit) => {
            let end = day_of(unit);
            values::all_i64(data, validity, |value| (0..end).contains(&value))
        }
        DataType::Decimal32(precision, _) => values::all_i32(data, validity, |value| {
            values::fits(value.into(), *precision)
        }),
        DataType::Decimal64(precision, _) => values::all_i64(data, validity, |value| {
            values::fits(value.into(), *precision)
        }),
        DataType::Decimal128(precision, _) => values::all_i128(data, validity, *precision),
        DataType::Decimal256(precision, _) => values::all_i256(data, validity, *precision),
        _ => true,
    };
    if are_right {
        Ok(())
    } else {
        malformed(format!("a value is outside of what {kind} can be"))
    }
}

fn positive(size: i32) -> Result<usize, Problem> {
    usize::try_from(size)
        .map_err(|_| Problem::Malformed("the size of a type is negative".to_owned()))
}

fn times(length: usize, width: usize) -> Result<usize, Problem> {
    length
        .checked_mul(width)
        .ok_or_else(|| Problem::Malformed("an array is longer than any memory".to_owned()))
}

fn malformed<T>(problem: impl Into<String>) -> Result<T, Problem> {
    Err(Problem::Malformed(problem.into()))
}
