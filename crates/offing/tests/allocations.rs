//! A gradient step allocates nothing once its working memory exists.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use ndarray::Array1;
use offing::dynamics::{EnsembleConfig, Trainer};
use offing::iql::{Iql, IqlConfig};
use offing::nn::ThreadPool;
use offing::sac::{Sac, SacConfig};
use offing::td3::{Td3Bc, Td3Config};
use offing::{Batch, Mat, Rng};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Set in the threads of the pool: the test harness has one of its own, which allocates when it likes.
    static COUNTED: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(usize::from(COUNTED.get()), Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn rows(n: usize) -> Batch {
    let mut rng = Rng::stream(0, "rows", 0);
    let mut mat = |cols: usize| Mat::from_shape_fn((n, cols), |_| rng.normal() as f32);
    let (obs, act, next_obs) = (mat(5), mat(2), mat(5));
    Batch { rew: Array1::ones(n), done: Array1::from_elem(n, false), obs, act, next_obs }
}

// One test, because the count is of all pools of the process.
#[test]
fn gradient_steps_allocate_nothing_after_the_first() {
    let pool = ThreadPool::new(2);
    // A thread allocates when it starts, which may be late on a busy machine: wait for both.
    let both = std::sync::Barrier::new(2);
    pool.for_each(2, |_| {
        both.wait();
        COUNTED.set(true);
    });
    let mut rng = Rng::stream(1, "test", 0);
    let data = rows(400);
    let batch = data.select(&(0..64).collect::<Vec<_>>());
    let cfg = SacConfig { hidden: vec![32, 32], ..SacConfig::default() };
    let mut agent = Sac::new(&cfg, 5, 2, &pool, &mut rng).unwrap();
    let td3 = Td3Config { hidden: vec![32, 32], ..Td3Config::default() };
    let mut td3 = Td3Bc::new(&td3, 5, 2, &pool, &mut rng).unwrap();
    let iql = IqlConfig { hidden: vec![32, 32], ..IqlConfig::default() }.over(10);
    let mut iql = Iql::new(&iql, 5, 2, &pool, &mut rng).unwrap();
    let model = EnsembleConfig { hidden: vec![32; 4], batch_size: 64, ..EnsembleConfig::default() };
    let mut trainer = Trainer::new(&model, &data, 0, &pool).unwrap();
    let drawn: Vec<u32> = (0..64).collect();
    let mut counts = Vec::new();
    for _ in 0..10 {
        let counted = |step: &mut dyn FnMut()| {
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            step();
            ALLOCATIONS.load(Ordering::Relaxed) - before
        };
        counts.push([
            counted(&mut || _ = agent.update(&batch, &mut rng).unwrap()),
            counted(&mut || _ = trainer.step_on(|_| &drawn).unwrap()),
            counted(&mut || _ = td3.update(&batch, &mut rng).unwrap()),
            counted(&mut || _ = iql.update(&batch).unwrap()),
        ]);
    }
    assert!(counts[0].iter().all(|&c| c > 0), "the first steps make room: {counts:?}");
    assert!(counts[2..].iter().all(|c| c == &[0; 4]), "allocations of each update and step: {counts:?}");
}
