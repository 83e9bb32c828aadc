//! Describes the buffers of a schema's arrays, and which of them refer to dictionaries.

use std::sync::Arc;

use arrow_ipc::Field as IpcField;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_schema::{DataType, Field, Schema};

use super::Problem;
use super::message::{metadata_of, open, unreadable};

/// Arrow's reader in C++, which reads the log, takes nothing that is deeper.
const MOST_LEVELS: usize = 64;

/// An array of a schema with those inside of it.
#[derive(Clone, Debug)]
pub struct Layout {
    pub kind: DataType,
    pub children: Vec<Layout>,
    pub dictionary: Option<Arc<DictionaryLayout>>,
}

#[derive(Debug)]
pub struct DictionaryLayout {
    pub id: i64,
    pub values: Layout,
}

/// A schema with the layout of each column.
#[derive(Clone, Debug)]
pub struct Columns {
    pub schema: Arc<Schema>,
    pub layouts: Vec<Layout>,
}

impl Columns {
    /// From the flatbuffer of a schema message.
    pub fn read(header: &[u8]) -> Result<Self, Problem> {
        let message = open(header)?;
        let wire = message
            .header_as_schema()
            .ok_or_else(|| unreadable("a schema should come before everything else"))?;
        if wire.endianness() != arrow_ipc::Endianness::Little {
            return Err(unreadable("its numbers are big-endian"));
        }
        let schema = try_fb_to_schema(wire).map_err(|error| unreadable(error.to_string()))?;
        let fields = wire.fields().unwrap_or_default();
        let layouts = schema.fields().iter().zip(fields);
        let layouts = layouts.map(|(field, wire)| layout(field, wire, 1));
        let layouts = layouts.collect::<Result<_, _>>()?;
        Ok(Self {
            schema: Arc::new(schema),
            layouts,
        })
    }

    /// From an encapsulated schema message, as the log and Python have it.
    pub fn read_encapsulated(message: &[u8]) -> Result<Self, Problem> {
        Self::read(metadata_of(message)?)
    }

    /// The dictionary of this number, wherever a column refers to it.
    pub fn dictionary(&self, id: i64) -> Option<&Arc<DictionaryLayout>> {
        self.layouts.iter().find_map(|layout| layout.find(id))
    }
}

impl Layout {
    /// How many arrays it consists of, itself included.
    pub fn arrays(&self) -> usize {
        1 + self.children.iter().map(Self::arrays).sum::<usize>()
    }

    fn find(&self, id: i64) -> Option<&Arc<DictionaryLayout>> {
        let own = self.dictionary.as_ref();
        own.filter(|dictionary| dictionary.id == id)
            .or_else(|| own.and_then(|dictionary| dictionary.values.find(id)))
            .or_else(|| self.children.iter().find_map(|child| child.find(id)))
    }
}

fn layout(field: &Field, wire: IpcField, level: usize) -> Result<Layout, Problem> {
    let DataType::Dictionary(_, values) = field.data_type() else {
        return nested(field.data_type(), wire, level);
    };
    let id = wire.dictionary().map_or(0, |dictionary| dictionary.id());
    let values = nested(values, wire, 1)?;
    let dictionary = Some(Arc::new(DictionaryLayout { id, values }));
    Ok(Layout {
        kind: field.data_type().clone(),
        children: Vec::new(),
        dictionary,
    })
}

/// The layout of a type whose children the field on the wire has.
fn nested(kind: &DataType, wire: IpcField, level: usize) -> Result<Layout, Problem> {
    if level > MOST_LEVELS {
        return Err(unreadable(format!(
            "a column is nested more than {MOST_LEVELS} levels deep"
        )));
    }
    let inner = children(kind);
    let on_wire = wire.children().unwrap_or_default();
    if inner.len() != on_wire.len() {
        return Err(unreadable(format!(
            "column '{}' has other children than its type",
            name(&wire)
        )));
    }
    let children = inner.into_iter().zip(on_wire);
    let children = children.map(|(field, wire)| layout(field, wire, level + 1));
    Ok(Layout {
        kind: kind.clone(),
        children: children.collect::<Result<_, _>>()?,
        dictionary: None,
    })
}

fn name<'a>(wire: &IpcField<'a>) -> &'a str {
    wire.name().unwrap_or_default()
}

/// The fields inside of a type that a collection can be sent; others have been refused with their schema.
pub fn children(kind: &DataType) -> Vec<&Arc<Field>> {
    match kind {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => vec![item],
        DataType::Struct(fields) => fields.iter().collect(),
        DataType::RunEndEncoded(ends, values) => vec![ends, values],
        DataType::Union(fields, _) => fields.iter().map(|(_, field)| field).collect(),
        _ => Vec::new(),
    }
}

/// Whether arrays of one type are, to the last byte, arrays of the other: names of what is inside of lists
/// and maps, time zones and metadata may differ.
pub fn is_same(one: &DataType, other: &DataType) -> bool {
    use DataType::{FixedSizeList, LargeList, List, Map, Struct, Timestamp};
    match (one, other) {
        (Timestamp(unit, zone), Timestamp(other_unit, other_zone)) => {
            unit == other_unit && zone.is_some() == other_zone.is_some()
        }
        (List(item), List(other)) | (LargeList(item), LargeList(other)) => {
            is_same(item.data_type(), other.data_type())
        }
        (FixedSizeList(item, size), FixedSizeList(other, other_size)) => {
            size == other_size && is_same(item.data_type(), other.data_type())
        }
        (Map(item, _), Map(other, _)) => is_same(item.data_type(), other.data_type()),
        (Struct(fields), Struct(others)) => {
            fields.len() == others.len()
                && fields
                    .iter()
                    .zip(others)
                    .all(|(field, other)| is_same(field.data_type(), other.data_type()))
        }
        _ => one == other,
    }
}
