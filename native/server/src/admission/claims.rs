//! How many bytes a batch has once each row has a copy of its value, counted before anything is copied.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryViewArray, StringViewArray};
use arrow_schema::DataType;

/// Returns the size of columns as they will be stored with these types.
pub fn kept_bytes<'a>(columns: impl Iterator<Item = (&'a ArrayRef, &'a DataType)>) -> u128 {
    columns
        .map(|(column, kind)| array_bytes(column, kind, column.len()))
        .sum()
}

/// `rows`: how many of the values there will be, on the average of those that are there.
fn array_bytes(array: &ArrayRef, kind: &DataType, rows: usize) -> u128 {
    let rows = rows as u128;
    let validity = rows.div_ceil(8);
    if let Some(dictionary) = array.as_any_dictionary_opt() {
        return validity + dictionary_bytes(array, dictionary.values(), kind);
    }
    let width = match kind {
        DataType::Boolean => return 2 * validity,
        // Nulls without a type become as many rows in each column. An array of structs has them itself.
        DataType::Struct(fields) if array.data_type() == &DataType::Null => {
            let columns = fields
                .iter()
                .map(|field| array_bytes(array, field.data_type(), array.len()));
            return validity + columns.sum::<u128>();
        }
        DataType::FixedSizeBinary(width) => u128::from(width.unsigned_abs()),
        DataType::Utf8 | DataType::Binary | DataType::List(_) | DataType::Map(_, _) => 4,
        _ => kind.primitive_width().unwrap_or(0) as u128,
    };
    validity + rows * width + inner_bytes(array, kind)
}

/// Returns the size of the buffers of strings, or of arrays nested in this one.
fn inner_bytes(array: &ArrayRef, kind: &DataType) -> u128 {
    let inside = |child: &ArrayRef, kind: &DataType| array_bytes(child, kind, child.len());
    match (array.data_type(), kind) {
        (DataType::Utf8View, _) => view_lengths(array.as_string_view()),
        (DataType::BinaryView, _) => binary_view_lengths(array.as_binary_view()),
        (DataType::Utf8, _) => array.as_string::<i32>().values().len() as u128,
        (DataType::LargeUtf8, _) => array.as_string::<i64>().values().len() as u128,
        (DataType::Binary, _) => array.as_binary::<i32>().values().len() as u128,
        (DataType::LargeBinary, _) => array.as_binary::<i64>().values().len() as u128,
        (DataType::List(_), DataType::List(item)) => {
            inside(array.as_list::<i32>().values(), item.data_type())
        }
        (DataType::LargeList(_), DataType::List(item)) => {
            inside(array.as_list::<i64>().values(), item.data_type())
        }
        (DataType::FixedSizeList(_, _), DataType::List(item)) => {
            inside(array.as_fixed_size_list().values(), item.data_type())
        }
        (DataType::Struct(_), DataType::Struct(fields)) => {
            let columns = array.as_struct().columns().iter().zip(fields);
            columns
                .map(|(column, field)| inside(column, field.data_type()))
                .sum()
        }
        (DataType::Map(_, _), DataType::Map(entries, _)) => {
            let DataType::Struct(fields) = entries.data_type() else {
                return 0;
            };
            let map = array.as_map();
            let columns = [map.keys(), map.values()].into_iter().zip(fields);
            columns
                .map(|(column, field)| inside(column, field.data_type()))
                .sum()
        }
        _ => 0,
    }
}

/// Each row with the largest of the values that it may have: of texts, with its own.
fn dictionary_bytes(array: &ArrayRef, values: &ArrayRef, kind: &DataType) -> u128 {
    let all = array_bytes(values, kind, values.len());
    let rows = array.len() as u128;
    if kind.primitive_width().is_some()
        || matches!(kind, DataType::Boolean | DataType::FixedSizeBinary(_))
    {
        return all
            + rows
                * kind
                    .primitive_width()
                    .map_or_else(|| fixed_width(kind), |width| width as u128);
    }
    let Some(dictionary) = array.as_any_dictionary_opt().filter(|_| !values.is_empty()) else {
        return all + rows * 4;
    };
    let Some(lengths) = lengths(values) else {
        return all + rows * all; // what is nested has no length of its own
    };
    let keys = dictionary.normalized_keys();
    let total: u128 = keys
        .into_iter()
        .enumerate()
        .filter(|(row, _)| array.is_valid(*row))
        .map(|(_, key)| lengths.get(key).copied().unwrap_or(0) as u128)
        .sum();
    all + rows * 4 + total
}

fn fixed_width(kind: &DataType) -> u128 {
    match kind {
        DataType::FixedSizeBinary(width) => u128::from(width.unsigned_abs()),
        _ => 1,
    }
}

fn lengths(values: &ArrayRef) -> Option<Vec<usize>> {
    let spans = |offsets: Vec<usize>| offsets.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let narrow = |offsets: &[i32]| spans(offsets.iter().map(|at| *at as usize).collect());
    let wide = |offsets: &[i64]| spans(offsets.iter().map(|at| *at as usize).collect());
    match values.data_type() {
        DataType::Utf8 => Some(narrow(values.as_string::<i32>().value_offsets())),
        DataType::Binary => Some(narrow(values.as_binary::<i32>().value_offsets())),
        DataType::LargeUtf8 => Some(wide(values.as_string::<i64>().value_offsets())),
        DataType::LargeBinary => Some(wide(values.as_binary::<i64>().value_offsets())),
        DataType::Utf8View => Some(
            values
                .as_string_view()
                .lengths()
                .map(|at| at as usize)
                .collect(),
        ),
        DataType::BinaryView => Some(
            values
                .as_binary_view()
                .lengths()
                .map(|at| at as usize)
                .collect(),
        ),
        _ => None,
    }
}

fn view_lengths(array: &StringViewArray) -> u128 {
    array.lengths().map(u128::from).sum()
}

fn binary_view_lengths(array: &BinaryViewArray) -> u128 {
    array.lengths().map(u128::from).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::NullArray;
    use arrow_schema::{Field, Fields};

    use super::*;

    #[test]
    fn nulls_count_as_what_they_become() {
        let rows = 1 << 40;
        let nulls: ArrayRef = Arc::new(NullArray::new(rows));
        let number = Field::new("a", DataType::Int64, true);
        let text = Field::new("b", DataType::Utf8, true);
        let nested = DataType::Struct(Fields::from(vec![number, text]));
        let per_row = |kind: &DataType| kept_bytes([(&nulls, kind)].into_iter()) / rows as u128;
        assert_eq!(per_row(&DataType::Int64), 8);
        assert_eq!(per_row(&nested), 8 + 4);
    }
}
