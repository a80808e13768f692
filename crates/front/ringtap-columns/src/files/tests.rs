// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files by hour, and what is left of files that do not become complete.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, TimestampNanosecondArray, UInt32Array};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::*;

const HOUR_14: i64 = 1_700_000_000_000_000_000 / HOUR_NS * HOUR_NS;

/// A table with a packet of 100 bytes at each of these times.
fn table(times: &[i64]) -> RecordBatch {
    let utc = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
    let fields = vec![
        Field::new("time", utc, false),
        Field::new("wire_length", DataType::UInt32, false),
    ];
    let times = TimestampNanosecondArray::from(times.to_vec()).with_timezone("UTC");
    let lengths = UInt32Array::from(vec![100; times.len()]);
    let columns: Vec<ArrayRef> = vec![Arc::new(times), Arc::new(lengths)];
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

/// All files below a folder that are complete, and the folders' hours.
fn complete(folder: &Path) -> BTreeMap<String, Vec<PathBuf>> {
    let mut found = BTreeMap::new();
    for date in fs::read_dir(folder).unwrap().flatten() {
        for hour in fs::read_dir(date.path()).unwrap().flatten() {
            let files = fs::read_dir(hour.path()).unwrap().flatten();
            let files = files.map(|file| file.path());
            let is_hidden =
                |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with('.');
            let files: Vec<_> = files.filter(|path| !is_hidden(path)).collect();
            let (date, hour) = (date.file_name(), hour.file_name());
            let name = format!("{}/{}", date.display(), hour.display());
            found.insert(name, files);
        }
    }
    found
}

#[test]
fn each_hour_has_its_files_and_each_packet_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let times = [HOUR_14 + 1001, HOUR_14 + HOUR_NS - 1, HOUR_14 + HOUR_NS];
    let schema = table(&times).schema();
    let mut files = TableFiles::new(folder.path(), TableFormat::Parquet, &schema, None).unwrap();
    files.write(&table(&times)).unwrap();
    files.write(&table(&[HOUR_14 + 7])).unwrap();
    assert!(complete(folder.path()).values().all(Vec::is_empty));
    files.finish().unwrap();
    assert_eq!((files.files(), files.written()), (2, (4, 400)));
    let found = complete(folder.path());
    let names: Vec<_> = found.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        ["date=2023-11-14/hour=22", "date=2023-11-14/hour=23"]
    );
    let first = &found["date=2023-11-14/hour=22"][0];
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(first).unwrap());
    let rows: Vec<_> = reader
        .unwrap()
        .build()
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let exact = rows[0].column_by_name("time_ns").unwrap();
    let exact = exact.as_primitive::<arrow_array::types::Int64Type>();
    assert_eq!(exact.values(), &[times[0], times[1], HOUR_14 + 7]);
    let time = rows[0].column_by_name("time").unwrap();
    let time = time.as_primitive::<arrow_array::types::TimestampMicrosecondType>();
    assert_eq!(time.value(0), times[0] / 1000);
}

#[test]
fn times_of_any_order_open_few_files() {
    let folder = tempfile::tempdir().unwrap();
    let schema = table(&[]).schema();
    let mut files = TableFiles::new(folder.path(), TableFormat::Csv, &schema, None).unwrap();
    for round in 0..3 {
        for hour in 0..10 {
            files
                .write(&table(&[HOUR_14 + hour * HOUR_NS + round]))
                .unwrap();
            assert!(files.open.len() <= MOST_OPEN);
        }
    }
    files.finish().unwrap();
    assert_eq!(files.written(), (30, 3000));
}

#[test]
fn a_file_begins_anew_when_its_time_is_over_and_none_is_left_half_written() {
    let folder = tempfile::tempdir().unwrap();
    let schema = table(&[]).schema();
    let rotate = Some(Duration::ZERO);
    let mut files = TableFiles::new(folder.path(), TableFormat::Arrow, &schema, rotate).unwrap();
    for number in 1..=3 {
        files.write(&table(&[HOUR_14])).unwrap();
        files.tick().unwrap();
        assert_eq!(files.files(), number);
    }
    files.write(&table(&[HOUR_14])).unwrap();
    drop(files);
    let hour = folder.path().join("date=2023-11-14/hour=22");
    assert_eq!(fs::read_dir(hour).unwrap().count(), 3);
}
