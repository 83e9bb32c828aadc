//! Casts of what clients send into the types that a collection keeps, as pyarrow makes them. Nothing is lost:
//! what does not fit is refused.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, ArrowTimestampType, Date32Type, Date64Type, Decimal32Type, Decimal64Type,
    Decimal128Type, Decimal256Type, Float16Type, Float32Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Time32MillisecondType, Time32SecondType, Time64MicrosecondType,
    Time64NanosecondType, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, FixedSizeListArray, GenericListArray, ListArray, MapArray,
    OffsetSizeTrait, PrimitiveArray, StringArray, StructArray, UInt64Array, make_array,
    new_null_array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, FieldRef, TimeUnit};

use super::layout::{children, is_same};
use super::names::type_name;

/// The array in a kept type; the error is a part of a sentence.
pub fn cast(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, String> {
    use DataType::{
        Binary, BinaryView, Date32, Date64, Decimal32, Decimal64, Decimal128, Decimal256,
        Dictionary, FixedSizeList, Float16, Float32, Int8, Int16, Int32, Int64, LargeBinary,
        LargeList, LargeUtf8, List, Map, Null, Struct, Time32, Time64, Timestamp, UInt8, UInt16,
        UInt32, UInt64, Utf8, Utf8View,
    };
    let from = array.data_type();
    if is_same(from, to) {
        return retyped(array.to_data(), to)
            .map(make_array)
            .map_err(|error| error.to_string());
    }
    Ok(match (from, to) {
        (Null, _) => new_null_array(to, array.len()),
        (Dictionary(_, _), _) => return unpacked(array, to),
        (Int8, Int32) => whole::<Int8Type, Int32Type>(array, to, i32::from),
        (Int16, Int32) => whole::<Int16Type, Int32Type>(array, to, i32::from),
        (UInt8, Int32) => whole::<UInt8Type, Int32Type>(array, to, i32::from),
        (UInt16, Int32) => whole::<UInt16Type, Int32Type>(array, to, i32::from),
        (UInt32, Int64) => whole::<UInt32Type, Int64Type>(array, to, i64::from),
        (UInt64, Decimal128(_, 0)) => whole::<UInt64Type, Decimal128Type>(array, to, i128::from),
        (Float16, Float32) => whole::<Float16Type, Float32Type>(array, to, |value| value.to_f32()),
        (Date64, Date32) => {
            return coarser::<Date64Type, Date32Type>(array, to, MILLISECONDS_OF_A_DAY);
        }
        (Decimal32(_, scale), Decimal128(_, kept)) if scale == kept => {
            whole::<Decimal32Type, Decimal128Type>(array, to, i128::from)
        }
        (Decimal64(_, scale), Decimal128(_, kept)) if scale == kept => {
            whole::<Decimal64Type, Decimal128Type>(array, to, i128::from)
        }
        (Decimal256(_, scale), Decimal128(_, kept)) if scale == kept => {
            // Validated to have no more digits than fit.
            whole::<Decimal256Type, Decimal128Type>(array, to, |value| value.to_i128().unwrap_or(0))
        }
        (Timestamp(TimeUnit::Second, _), Timestamp(TimeUnit::Microsecond, _)) => {
            return finer::<TimestampSecondType>(array, to, 1_000_000);
        }
        (Timestamp(TimeUnit::Millisecond, _), Timestamp(TimeUnit::Microsecond, _)) => {
            return finer::<TimestampMillisecondType>(array, to, 1_000);
        }
        (Timestamp(TimeUnit::Nanosecond, _), Timestamp(TimeUnit::Microsecond, _)) => {
            return coarser::<TimestampNanosecondType, TimestampMicrosecondType>(array, to, 1_000);
        }
        (Time32(TimeUnit::Second), Time64(_)) => {
            whole::<Time32SecondType, Time64MicrosecondType>(array, to, |value| {
                i64::from(value) * 1_000_000
            })
        }
        (Time32(_), Time64(_)) => {
            whole::<Time32MillisecondType, Time64MicrosecondType>(array, to, |value| {
                i64::from(value) * 1_000
            })
        }
        (Time64(TimeUnit::Nanosecond), Time64(TimeUnit::Microsecond)) => {
            return coarser::<Time64NanosecondType, Time64MicrosecondType>(array, to, 1_000);
        }
        (LargeUtf8, Utf8) => {
            let large = array.as_string::<i64>();
            let offsets = narrowed(large.offsets(), to)?;
            let texts =
                StringArray::try_new(offsets, large.values().clone(), large.nulls().cloned());
            Arc::new(texts.map_err(sentence)?)
        }
        (LargeBinary, Binary) => {
            let large = array.as_binary::<i64>();
            let offsets = narrowed(large.offsets(), to)?;
            let bytes =
                BinaryArray::try_new(offsets, large.values().clone(), large.nulls().cloned());
            Arc::new(bytes.map_err(sentence)?)
        }
        (Utf8View, Utf8) => {
            let views = array.as_string_view();
            let mut texts = StringBuilder::with_capacity(views.len(), 0);
            views.iter().for_each(|text| texts.append_option(text));
            Arc::new(texts.finish())
        }
        (BinaryView, Binary) => {
            let views = array.as_binary_view();
            let mut bytes = BinaryBuilder::with_capacity(views.len(), 0);
            views.iter().for_each(|value| bytes.append_option(value));
            Arc::new(bytes.finish())
        }
        (List(_), List(item)) => list(array.as_list::<i32>(), item, to)?,
        (LargeList(_), List(item)) => list(array.as_list::<i64>(), item, to)?,
        (FixedSizeList(_, _), List(item)) => fixed_list(array.as_fixed_size_list(), item, to)?,
        (Struct(_), Struct(fields)) => {
            let columns = array.as_struct();
            let fitting = columns.columns().iter().zip(fields);
            let fitting = fitting.map(|(column, field)| cast(column, field.data_type()));
            let fitting = fitting.collect::<Result<_, _>>()?;
            Arc::new(
                StructArray::try_new(fields.clone(), fitting, columns.nulls().cloned())
                    .map_err(sentence)?,
            )
        }
        (Map(_, _), Map(entries, _)) => map(array.as_map(), entries)?,
        _ => {
            return Err(format!(
                "there is no cast from {} to {}",
                type_name(from),
                type_name(to)
            ));
        }
    })
}

const MILLISECONDS_OF_A_DAY: i64 = 86_400_000;

/// A cast that cannot lose anything.
fn whole<From, To>(
    array: &ArrayRef,
    to: &DataType,
    convert: impl Fn(From::Native) -> To::Native,
) -> ArrayRef
where
    From: ArrowPrimitiveType,
    To: ArrowPrimitiveType,
{
    let values: PrimitiveArray<To> = array.as_primitive::<From>().unary(convert);
    Arc::new(values.with_data_type(to.clone()))
}

fn finer<From>(array: &ArrayRef, to: &DataType, factor: i64) -> Result<ArrayRef, String>
where
    From: ArrowTimestampType,
{
    let from = array.as_primitive::<From>();
    let values: Result<PrimitiveArray<TimestampMicrosecondType>, String> =
        from.try_unary(|value| {
            value.checked_mul(factor).ok_or_else(|| {
                format!(
                    "Casting from {} to {} would result in out of bounds timestamp: {value}",
                    type_name(array.data_type()),
                    type_name(to)
                )
            })
        });
    Ok(Arc::new(values?.with_data_type(to.clone())))
}

/// From nanoseconds to microseconds, or from milliseconds to days, of which a column holds fewer.
fn coarser<From, To>(array: &ArrayRef, to: &DataType, divisor: i64) -> Result<ArrayRef, String>
where
    From: ArrowPrimitiveType<Native = i64>,
    To: ArrowPrimitiveType<Native: TryFrom<i64>>,
{
    let from = array.as_primitive::<From>();
    let values: Result<PrimitiveArray<To>, String> = from.try_unary(|value| {
        let whole = (value % divisor == 0).then_some(value / divisor);
        whole
            .and_then(|value| To::Native::try_from(value).ok())
            .ok_or_else(|| {
                format!(
                    "Casting from {} to {} would lose data: {value}",
                    type_name(array.data_type()),
                    type_name(to)
                )
            })
    });
    Ok(Arc::new(values?.with_data_type(to.clone())))
}

/// Each row with a copy of its value. What no row has is not cast, as pyarrow does it.
fn unpacked(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, String> {
    let Some(dictionary) = array.as_any_dictionary_opt() else {
        return Err("it is no dictionary".to_owned());
    };
    if dictionary.values().is_empty() {
        return Ok(new_null_array(to, array.len()));
    }
    // Without what stands in the indices of nulls.
    let nulls = dictionary.keys().nulls();
    let keys = dictionary
        .normalized_keys()
        .into_iter()
        .map(|key| key as u64);
    let indices = UInt64Array::new(keys.collect::<Vec<_>>().into(), nulls.cloned());
    let rows = arrow_select::take::take(dictionary.values(), &indices, None).map_err(sentence)?;
    cast(&rows, to)
}

fn list<Offset: OffsetSizeTrait>(
    array: &GenericListArray<Offset>,
    item: &FieldRef,
    to: &DataType,
) -> Result<ArrayRef, String> {
    let offsets = narrowed(array.offsets(), to)?;
    let values = cast(array.values(), item.data_type())?;
    list_of(item, offsets, values, array.nulls())
}

fn fixed_list(
    array: &FixedSizeListArray,
    item: &FieldRef,
    to: &DataType,
) -> Result<ArrayRef, String> {
    let size = usize::try_from(array.value_length()).unwrap_or_default();
    let ends = (0..=array.len()).map(|index| i32::try_from(index * size));
    let offsets: Vec<i32> = ends.collect::<Result<_, _>>().map_err(|_| too_long(to))?;
    let values = cast(array.values(), item.data_type())?;
    list_of(
        item,
        OffsetBuffer::new(offsets.into()),
        values,
        array.nulls(),
    )
}

fn list_of(
    item: &FieldRef,
    offsets: OffsetBuffer<i32>,
    values: ArrayRef,
    nulls: Option<&NullBuffer>,
) -> Result<ArrayRef, String> {
    let list = ListArray::try_new(Arc::clone(item), offsets, values, nulls.cloned());
    Ok(Arc::new(list.map_err(sentence)?))
}

fn map(array: &MapArray, entries: &FieldRef) -> Result<ArrayRef, String> {
    let columns: ArrayRef = Arc::new(array.entries().clone());
    let columns = cast(&columns, entries.data_type())?;
    let map = MapArray::try_new(
        Arc::clone(entries),
        array.offsets().clone(),
        columns.as_struct().clone(),
        array.nulls().cloned(),
        false,
    );
    Ok(Arc::new(map.map_err(sentence)?))
}

fn narrowed<Offset: OffsetSizeTrait>(
    offsets: &OffsetBuffer<Offset>,
    to: &DataType,
) -> Result<OffsetBuffer<i32>, String> {
    let narrow = offsets
        .iter()
        .map(|offset| i32::try_from(offset.as_usize()));
    let narrow: Vec<i32> = narrow.collect::<Result<_, _>>().map_err(|_| too_long(to))?;
    Ok(OffsetBuffer::new(ScalarBuffer::from(narrow)))
}

/// Returns the same data with a type that differs only in names.
fn retyped(data: ArrayData, to: &DataType) -> Result<ArrayData, ArrowError> {
    let inner = data.child_data().iter().zip(children(to));
    let inner = inner.map(|(child, field)| retyped(child.clone(), field.data_type()));
    let inner = inner.collect::<Result<_, _>>()?;
    data.into_builder()
        .child_data(inner)
        .data_type(to.clone())
        .build()
}

fn too_long(to: &DataType) -> String {
    format!("it is too long for {}", type_name(to))
}

fn sentence(error: ArrowError) -> String {
    error.to_string()
}
