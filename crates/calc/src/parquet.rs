//! Batches in Parquet.

use crate::InputError;

/// The first bytes of every Parquet file.
const MAGIC: &[u8] = b"PAR1";

/// A file of rows as CSV: a Parquet file with the same columns and rows, or any other file as it is.
///
/// Columns are numbers, in the units of bare cells, or text as cells have it; a null is an empty cell.
///
/// # Errors
/// A Parquet file that is broken, or has columns of another kind; any, where the feature `parquet` is off.
pub fn as_csv(file: Vec<u8>) -> Result<Vec<u8>, InputError> {
    if file.starts_with(MAGIC) { converted(file) } else { Ok(file) }
}

#[cfg(not(feature = "parquet"))]
fn converted(_: Vec<u8>) -> Result<Vec<u8>, InputError> {
    Err(InputError::new(
        "it is a Parquet file, which this build does not read; build fullpipe with `--features parquet`, or give CSV",
    ))
}

#[cfg(feature = "parquet")]
fn converted(file: Vec<u8>) -> Result<Vec<u8>, InputError> {
    use ::parquet::file::reader::{FileReader, SerializedFileReader};

    let broken = |error: &dyn std::error::Error| InputError::new(format!("the Parquet file cannot be read: {error}"));
    let reader = SerializedFileReader::new(bytes::Bytes::from(file)).map_err(|error| broken(&error))?;
    let columns = reader.metadata().file_metadata().schema().get_fields().to_vec();
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record(columns.iter().map(|column| column.name())).map_err(|error| broken(&error))?;
    for row in reader.get_row_iter(None).map_err(|error| broken(&error))? {
        let row = row.map_err(|error| broken(&error))?;
        let cells: Vec<String> =
            row.get_column_iter().map(|(name, field)| cell(name, field)).collect::<Result<_, _>>()?;
        csv.write_record(cells).map_err(|error| broken(&error))?;
    }
    csv.into_inner().map_err(|error| broken(&error))
}

#[cfg(feature = "parquet")]
fn cell(name: &str, field: &::parquet::record::Field) -> Result<String, InputError> {
    use ::parquet::record::Field;

    Ok(match field {
        Field::Null => String::new(),
        Field::Str(text) => text.clone(),
        Field::Byte(number) => number.to_string(),
        Field::Short(number) => number.to_string(),
        Field::Int(number) => number.to_string(),
        Field::Long(number) => number.to_string(),
        Field::UByte(number) => number.to_string(),
        Field::UShort(number) => number.to_string(),
        Field::UInt(number) => number.to_string(),
        Field::ULong(number) => number.to_string(),
        Field::Float(number) => number.to_string(),
        // pandas writes a number that is not there as NaN.
        Field::Double(number) if number.is_nan() => String::new(),
        Field::Double(number) => number.to_string(),
        _ => return Err(InputError::new(format!("column {name}: it has neither numbers nor text"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_stays_as_it_is() {
        assert_eq!(as_csv(b"rtt\n1ms\n".to_vec()).unwrap(), b"rtt\n1ms\n");
    }

    #[test]
    fn a_broken_file_is_reported_in_a_sentence() {
        let stated = as_csv(b"PAR1 and no more".to_vec()).unwrap_err().to_string();
        assert!(stated.contains("Parquet") && stated.lines().count() == 1, "{stated}");
    }

    #[cfg(feature = "parquet")]
    mod with_the_feature {
        use std::sync::Arc;

        use ::parquet::basic::{Compression, ZstdLevel};
        use ::parquet::column::writer::ColumnWriter;
        use ::parquet::data_type::ByteArray;
        use ::parquet::file::properties::WriterProperties;
        use ::parquet::file::writer::SerializedFileWriter;
        use ::parquet::schema::parser::parse_message_type;

        use super::super::as_csv;

        fn written(compression: Compression) -> Vec<u8> {
            let schema = "message paths {
                OPTIONAL DOUBLE rtt;
                REQUIRED INT64 window;
                REQUIRED BYTE_ARRAY bandwidth (UTF8);
            }";
            let schema = Arc::new(parse_message_type(schema).unwrap());
            let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
            let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
            let mut rows = writer.next_row_group().unwrap();
            while let Some(mut column) = rows.next_column().unwrap() {
                match column.untyped() {
                    ColumnWriter::DoubleColumnWriter(column) => {
                        column.write_batch(&[0.173, f64::NAN], Some(&[1, 0, 1]), None)
                    }
                    ColumnWriter::Int64ColumnWriter(column) => column.write_batch(&[65_536, 1, 2], None, None),
                    ColumnWriter::ByteArrayColumnWriter(column) => {
                        column.write_batch(&["100M", "1e9", "1,5"].map(ByteArray::from), None, None)
                    }
                    _ => panic!("the schema has no such column"),
                }
                .unwrap();
                column.close().unwrap();
            }
            rows.close().unwrap();
            writer.into_inner().unwrap()
        }

        #[test]
        fn what_was_written_is_read_whatever_packs_it() {
            for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::ZSTD(ZstdLevel::default())]
            {
                let csv = String::from_utf8(as_csv(written(compression)).unwrap()).unwrap();
                assert_eq!(csv, "rtt,window,bandwidth\n0.173,65536,100M\n,1,1e9\n,2,\"1,5\"\n", "{compression:?}");
            }
        }
    }
}
