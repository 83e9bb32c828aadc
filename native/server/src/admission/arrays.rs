//! Arrays of a batch that has been checked, over the bytes that came.

use std::slice::Iter;

use arrow_array::{Array, ArrayRef, make_array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::{ArrayData, ArrayDataBuilder};
use arrow_schema::{ArrowError, DataType};
use bytes::Bytes;

use super::check::Dictionaries;
use super::layout::Layout;
use super::message::{Node, Parts};
use super::values::VIEW_BYTES;

/// One array for each column. Arrow's own validation is left on: it finds nothing that has been checked here.
pub fn arrays(
    layouts: &[Layout],
    parts: &Parts,
    dictionaries: &Dictionaries,
) -> Result<Vec<ArrayRef>, ArrowError> {
    let mut builder = Builder {
        nodes: parts.nodes.iter(),
        buffers: parts.buffers.iter(),
        view_buffers: parts.view_buffers.iter(),
        dictionaries,
    };
    let arrays = layouts
        .iter()
        .map(|layout| builder.array(layout).map(make_array));
    arrays.collect()
}

struct Builder<'a> {
    nodes: Iter<'a, Node>,
    buffers: Iter<'a, Bytes>,
    view_buffers: Iter<'a, usize>,
    dictionaries: &'a Dictionaries,
}

impl Builder<'_> {
    fn array(&mut self, layout: &Layout) -> Result<ArrayData, ArrowError> {
        let Some(&Node { length, nulls }) = self.nodes.next() else {
            return Err(ArrowError::IpcError("an array is missing".to_owned()));
        };
        let builder = ArrayData::builder(layout.kind.clone()).len(length);
        if layout.kind == DataType::Null {
            return builder.build();
        }
        let validity = self.exactly(length.div_ceil(8));
        let bits = || NullBuffer::new(BooleanBuffer::new(validity, 0, length));
        let builder = builder.nulls((nulls > 0).then(bits)).align_buffers(true);
        self.filled(layout, length, builder)?.build()
    }

    fn filled(
        &mut self,
        layout: &Layout,
        length: usize,
        builder: ArrayDataBuilder,
    ) -> Result<ArrayDataBuilder, ArrowError> {
        use DataType::{
            Binary, BinaryView, Dictionary, FixedSizeList, LargeBinary, LargeList, LargeUtf8, List,
            Map, Struct, Utf8, Utf8View,
        };
        Ok(match &layout.kind {
            Utf8 | Binary => builder
                .add_buffer(self.offsets(length, 4))
                .add_buffer(self.buffer()),
            LargeUtf8 | LargeBinary => builder
                .add_buffer(self.offsets(length, 8))
                .add_buffer(self.buffer()),
            Utf8View | BinaryView => {
                let views = self.exactly(length * VIEW_BYTES);
                let count = self.view_buffers.next().copied().unwrap_or(0);
                let data = self.buffers.by_ref().take(count).cloned().map(Buffer::from);
                builder
                    .add_buffer(views)
                    .add_buffers(data.collect::<Vec<_>>())
            }
            List(_) | Map(_, _) => builder
                .add_buffer(self.offsets(length, 4))
                .child_data(self.children(layout)?),
            LargeList(_) => builder
                .add_buffer(self.offsets(length, 8))
                .child_data(self.children(layout)?),
            FixedSizeList(_, _) | Struct(_) => builder.child_data(self.children(layout)?),
            Dictionary(index, _) => {
                let values = layout
                    .dictionary
                    .as_ref()
                    .and_then(|of| self.dictionaries.get(&of.id));
                let indices = self.exactly(length * index.primitive_width().unwrap_or(1));
                builder
                    .add_buffer(indices)
                    .child_data(values.map(|values| values.to_data()).into_iter().collect())
            }
            DataType::Boolean => builder.add_buffer(self.exactly(length.div_ceil(8))),
            DataType::FixedSizeBinary(width) => {
                builder.add_buffer(self.exactly(length * width.unsigned_abs() as usize))
            }
            kind => builder.add_buffer(self.exactly(length * kind.primitive_width().unwrap_or(1))),
        })
    }

    fn children(&mut self, layout: &Layout) -> Result<Vec<ArrayData>, ArrowError> {
        layout
            .children
            .iter()
            .map(|child| self.array(child))
            .collect()
    }

    /// Without what a buffer has beyond its array: Arrow's code may not expect it.
    fn exactly(&mut self, size: usize) -> Buffer {
        let buffer = self.buffer();
        buffer.slice_with_length(0, size.min(buffer.len()))
    }

    fn buffer(&mut self) -> Buffer {
        self.buffers
            .next()
            .cloned()
            .map(Buffer::from)
            .unwrap_or_default()
    }

    /// Those of an empty array may be missing.
    fn offsets(&mut self, length: usize, width: usize) -> Buffer {
        let offsets = self.exactly(length.saturating_add(1).saturating_mul(width));
        if length == 0 {
            Buffer::from(vec![0u8; width])
        } else {
            offsets
        }
    }
}
