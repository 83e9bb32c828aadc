//! Values as the project's sentences show them: as Python does.

use headrace_core::Quoted;
use serde_json::Value;

pub fn repr(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => repr_float(float),
            _ => number.to_string(),
        },
        Value::String(text) => Quoted(text).to_string(),
        Value::Array(values) => {
            let parts: Vec<String> = values.iter().map(repr).collect();
            format!("[{}]", parts.join(", "))
        }
        Value::Object(entries) => {
            let parts: Vec<String> = entries
                .iter()
                .map(|(key, value)| format!("{}: {}", Quoted(key), repr(value)))
                .collect();
            format!("{{{}}}", parts.join(", "))
        }
    }
}

fn repr_float(float: f64) -> String {
    let magnitude = float.abs();
    if float == 0.0 || (1e-4..1e16).contains(&magnitude) {
        return format!("{float:?}");
    }
    let shown = format!("{float:e}");
    let (digits, exponent) = shown.split_once('e').unwrap_or((&shown, "0"));
    let (sign, power) = match exponent.strip_prefix('-') {
        Some(power) => ('-', power),
        None => ('+', exponent),
    };
    format!("{digits}e{sign}{power:0>2}")
}

/// A count with a comma between thousands.
pub fn grouped(number: impl TryInto<u128>) -> String {
    let digits = number.try_into().unwrap_or(u128::MAX).to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_as_python_shows_them() {
        for (json, shown) in [
            ("null", "None"),
            ("true", "True"),
            ("18446744073709551615", "18446744073709551615"),
            ("-1", "-1"),
            ("1.5", "1.5"),
            ("100.0", "100.0"),
            ("1e16", "1e+16"),
            ("1.5e-5", "1.5e-05"),
            ("1e300", "1e+300"),
            (r#""it's""#, "\"it's\""),
            (r#""'\"""#, r#"'\'"'"#),
            (r#""a\n\u0000\\ü""#, r"'a\n\x00\\ü'"),
            (r#"[1, "a", null]"#, "[1, 'a', None]"),
            (r#"{"b": [], "a": {}}"#, "{'b': [], 'a': {}}"),
        ] {
            assert_eq!(repr(&serde_json::from_str(json).unwrap()), shown, "{json}");
        }
    }

    #[test]
    fn counts_have_commas() {
        let shown = [0usize, 999, 1000, 67_108_864].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "67,108,864"]);
    }
}
