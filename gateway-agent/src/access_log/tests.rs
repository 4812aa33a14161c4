use std::io::Read as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{AccessLog, QUEUE_BYTES_MAX, Queue, Target};
use crate::metrics::WorkerCells;

/// Polls until `condition` holds.
fn until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain");
        std::thread::yield_now();
    }
}

fn put(queue: &Queue, line: &str) -> bool {
    queue.push(&[line.as_bytes(), b"\n"])
}

#[test]
fn lines_of_all_workers_are_written_whole_and_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    std::fs::write(&path, "before\n").unwrap();
    let (log, writer) = AccessLog::start(Target::File(path.clone()), Arc::default()).unwrap();
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let queue = log.queue().unwrap();
            std::thread::spawn(move || {
                for n in 0..1000 {
                    until(|| put(&queue, &format!("{worker} {n}")));
                }
            })
        })
        .collect();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    writer.finish();
    // On a machine that is very slow the end does not wait for all of it.
    until(|| std::fs::read_to_string(&path).unwrap().lines().count() == 4001);
    let text = std::fs::read_to_string(&path).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.remove(0), "before");
    assert_eq!(lines.len(), 4000);
    for worker in 0..4 {
        let own: Vec<String> = lines
            .iter()
            .filter_map(|line| line.strip_prefix(&format!("{worker} ")))
            .map(str::to_owned)
            .collect();
        assert_eq!(own, (0..1000).map(|n| n.to_string()).collect::<Vec<_>>());
    }
}

#[test]
fn a_line_wakes_a_writer_that_sleeps() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let (log, writer) = AccessLog::start(Target::File(path.clone()), Arc::default()).unwrap();
    let queue = log.queue().unwrap();
    until(|| writer.shared.bell.is_asleep.load(super::Ordering::SeqCst));
    assert!(put(&queue, "a"));
    until(|| std::fs::read_to_string(&path).unwrap() == "a\n");
    writer.finish();
}

#[test]
fn what_does_not_fit_is_refused_and_the_rest_is_written() {
    // A pipe that nobody reads: the writer waits.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    // Opened for both, or opening for writing would wait for a reader.
    let mut pipe = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let (log, writer) = AccessLog::start(Target::File(path), Arc::default()).unwrap();
    let queue = log.queue().unwrap();
    let line = "x".repeat(1023);
    let mut n_taken = 0;
    // The writer has taken some of it away before it had to wait.
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut n_refused = 0;
    while n_refused < 1000 {
        assert!(Instant::now() < deadline);
        if put(&queue, &line) {
            n_taken += 1;
        } else {
            n_refused += 1;
        }
    }
    assert!(n_taken >= QUEUE_BYTES_MAX / 1024);
    let reader = std::thread::spawn(move || {
        let mut all = vec![0; n_taken * 1024];
        pipe.read_exact(&mut all).unwrap();
        all
    });
    writer.finish();
    let all = reader.join().unwrap();
    assert!(all.chunks(1024).all(|one| one == format!("{line}\n").as_bytes()));
}

#[test]
fn a_file_that_was_moved_away_is_opened_anew() {
    let folder = tempfile::tempdir().unwrap();
    let (path, old) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
    let (log, writer) = AccessLog::start(Target::File(path.clone()), Arc::default()).unwrap();
    let queue = log.queue().unwrap();
    assert!(put(&queue, "before"));
    until(|| std::fs::read_to_string(&path).unwrap() == "before\n");
    std::fs::rename(&path, &old).unwrap();
    // Until the writer looks at where it writes to; more than fits in the meantime is refused.
    let mut n_taken = 0;
    until(|| {
        n_taken += usize::from(put(&queue, "after"));
        path.exists()
    });
    writer.finish();
    assert!(n_taken > 0);
    assert!(std::fs::read_to_string(&old).unwrap().starts_with("before\n"));
}

#[test]
fn what_cannot_be_written_is_counted_by_lines() {
    let cells: Arc<WorkerCells> = Arc::default();
    let (log, writer) = AccessLog::start(Target::File("/dev/full".into()), cells.clone()).unwrap();
    let queue = log.queue().unwrap();
    assert!(put(&queue, "a") && put(&queue, "b"));
    until(|| cells.access_log_dropped.value() == 2);
    assert!(put(&queue, "c"));
    writer.finish();
    until(|| cells.access_log_dropped.value() == 3);
}

#[test]
fn without_a_log_there_are_no_queues() {
    assert!(AccessLog::default().queue().is_none());
}
