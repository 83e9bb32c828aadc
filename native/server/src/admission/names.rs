//! Types as pyarrow names them, which is how they stand in errors and in the docs.

use arrow_schema::{DataType, Field, TimeUnit};

pub fn type_name(kind: &DataType) -> String {
    match kind {
        DataType::Boolean => "bool".to_owned(),
        DataType::Float16 => "halffloat".to_owned(),
        DataType::Float32 => "float".to_owned(),
        DataType::Float64 => "double".to_owned(),
        DataType::Utf8 => "string".to_owned(),
        DataType::LargeUtf8 => "large_string".to_owned(),
        DataType::Utf8View => "string_view".to_owned(),
        DataType::Binary => "binary".to_owned(),
        DataType::LargeBinary => "large_binary".to_owned(),
        DataType::BinaryView => "binary_view".to_owned(),
        DataType::Date32 => "date32[day]".to_owned(),
        DataType::Date64 => "date64[ms]".to_owned(),
        DataType::FixedSizeBinary(width) => format!("fixed_size_binary[{width}]"),
        DataType::Timestamp(unit, None) => format!("timestamp[{}]", unit_name(unit)),
        DataType::Timestamp(unit, Some(zone)) => {
            format!("timestamp[{}, tz={zone}]", unit_name(unit))
        }
        DataType::Time32(unit) => format!("time32[{}]", unit_name(unit)),
        DataType::Time64(unit) => format!("time64[{}]", unit_name(unit)),
        DataType::Decimal32(precision, scale) => format!("decimal32({precision}, {scale})"),
        DataType::Decimal64(precision, scale) => format!("decimal64({precision}, {scale})"),
        DataType::Decimal128(precision, scale) => format!("decimal128({precision}, {scale})"),
        DataType::Decimal256(precision, scale) => format!("decimal256({precision}, {scale})"),
        DataType::List(item) => format!("list<{}>", field_name(item)),
        DataType::LargeList(item) => format!("large_list<{}>", field_name(item)),
        DataType::FixedSizeList(item, size) => {
            format!("fixed_size_list<{}>[{size}]", field_name(item))
        }
        DataType::Struct(fields) => {
            let inside: Vec<String> = fields.iter().map(|field| field_name(field)).collect();
            format!("struct<{}>", inside.join(", "))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) if fields.len() == 2 => {
                format!(
                    "map<{}, {}>",
                    type_name(fields[0].data_type()),
                    type_name(fields[1].data_type())
                )
            }
            other => format!("map<{}>", type_name(other)),
        },
        DataType::Dictionary(index, values) => {
            format!(
                "dictionary<values={}, indices={}, ordered=0>",
                type_name(values),
                type_name(index)
            )
        }
        other => other.to_string().to_lowercase(),
    }
}

fn field_name(field: &Field) -> String {
    let required = if field.is_nullable() { "" } else { " not null" };
    format!(
        "{}: {}{required}",
        field.name(),
        type_name(field.data_type())
    )
}

fn unit_name(unit: &TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    }
}
