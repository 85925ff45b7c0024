//! The ensemble as a whole: it learns, it is deterministic, it resumes, and its two ways to step agree.

use super::*;
use crate::nn::{Tensors, ThreadPool};
use ndarray::s;

/// A bent world: the change of state depends on sin and products, the reward on both.
fn world(rows: usize, seed: u64) -> Batch {
    let mut rng = Rng::stream(seed, "world", 0);
    let obs = Mat::from_shape_fn((rows, 3), |_| rng.normal() as f32);
    let act = Mat::from_shape_fn((rows, 2), |_| rng.range(-1.0, 1.0) as f32);
    let mut next_obs = obs.clone();
    let mut rew = Array1::zeros(rows);
    for i in 0..rows {
        let (s, a) = (obs.row(i), act.row(i));
        next_obs[[i, 0]] += s[1].sin();
        next_obs[[i, 1]] += a[0] * s[2];
        next_obs[[i, 2]] += a[1] * a[1];
        rew[i] = s[0].cos() - a[0] * a[0];
        // Without noise the likelihood would reward shaving the easiest column for ever, at the others' expense (as in
        // PyTorch, where the same world without noise gets stuck alike).
        next_obs.row_mut(i).iter_mut().chain([&mut rew[i]]).for_each(|x| *x += 0.1 * rng.normal() as f32);
    }
    Batch { obs, act, rew, next_obs, done: Array1::from_elem(rows, false) }
}

fn small() -> EnsembleConfig {
    EnsembleConfig {
        members: 3,
        elites: 2,
        hidden: vec![48; 4],
        batch_size: 64,
        max_epochs: Some(3),
        ..Default::default()
    }
}

fn fit(cfg: &EnsembleConfig, rows: &Batch, threads: usize) -> Ensemble {
    Ensemble::fit(cfg, rows, 7, &ThreadPool::new(threads), |_, _| Ok(())).unwrap()
}

/// Mean squared error of the best linear map from (1, s, a) to (s' − s, r), by the normal equations.
fn linear_error(rows: &Batch) -> f64 {
    let x = |i: usize| {
        let both = rows.obs.row(i).to_vec().into_iter().chain(rows.act.row(i).to_vec());
        std::iter::once(1.0).chain(both.map(f64::from)).collect::<Vec<f64>>()
    };
    let y = |i: usize| {
        let mut y: Vec<f64> = (0..3).map(|j| f64::from(rows.next_obs[[i, j]] - rows.obs[[i, j]])).collect();
        y.push(f64::from(rows.rew[i]));
        y
    };
    let (n, k, m) = (rows.len(), 6, 4);
    let mut a = vec![vec![0.0; k + m]; k];
    for i in 0..n {
        let (x, y) = (x(i), y(i));
        for (p, row) in a.iter_mut().enumerate() {
            row.iter_mut().zip(x.iter().chain(&y)).for_each(|(a, v)| *a += x[p] * v);
        }
    }
    for p in 0..k {
        let pivot = a[p].clone();
        for (q, row) in a.iter_mut().enumerate() {
            let factor = if q == p { 1.0 - 1.0 / pivot[p] } else { row[p] / pivot[p] };
            row.iter_mut().zip(&pivot).for_each(|(a, v)| *a -= factor * v);
        }
    }
    let error = |i: usize| -> f64 {
        let (x, y) = (x(i), y(i));
        (0..m).map(|j| (y[j] - (0..k).map(|p| x[p] * a[p][k + j]).sum::<f64>()).powi(2)).sum()
    };
    (0..n).map(error).sum::<f64>() / (n * m) as f64
}

#[test]
fn it_learns_what_a_linear_model_cannot() {
    let rows = world(4000, 0);
    let cfg = EnsembleConfig { max_epochs: Some(40), patience: 40, lr: 2e-3, ..small() };
    let model = fit(&cfg, &rows, 2);
    let linear = linear_error(&rows);
    let worst = model.holdout().iter().copied().fold(0.0, f64::max);
    assert_eq!(model.elites().len(), 2);
    for &elite in model.elites() {
        let error = model.holdout()[elite];
        assert!(error < linear / 5.0 && error < worst, "member {elite}: {error}, linear {linear}");
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    let rows = world(700, 1);
    let one = fit(&small(), &rows, 1).save().to_bytes().unwrap();
    assert!(one == fit(&small(), &rows, 2).save().to_bytes().unwrap());
    assert!(one == fit(&small(), &rows, 5).save().to_bytes().unwrap());
}

#[test]
fn training_resumes_bit_for_bit_in_the_middle_of_an_epoch() {
    let (rows, pool) = (world(700, 2), ThreadPool::new(2));
    let mut kept = None;
    let straight = Ensemble::fit(&small(), &rows, 7, &pool, |now, trainer| {
        if now.updates == 14 {
            assert!(now.epoch == 1 && !now.epoch_ended, "{now:?}");
            kept = Some(trainer.save().to_bytes()?);
        }
        Ok(())
    })
    .unwrap();
    let mut trainer = Trainer::new(&small(), &rows, 7, &ThreadPool::new(1)).unwrap();
    trainer.load(&Tensors::from_bytes(&kept.unwrap()).unwrap()).unwrap();
    while !trainer.step().unwrap().finished {}
    assert_eq!(trainer.finish().unwrap().save(), straight.save());
}

#[test]
fn a_step_by_one_member_is_that_members_forecast() {
    let rows = world(900, 3);
    let model = fit(&small(), &rows, 2);
    let all = model.predict(&rows.obs, &rows.act);
    assert_eq!(all.mean.dim(), (3, 900, 4));
    let (mut a, mut b) = (Rng::stream(0, "step", 0), Rng::stream(0, "step", 0));
    let one = model.step(&rows.obs, &rows.act, Members::One, &mut a);
    let many = model.step(&rows.obs, &rows.act, Members::All, &mut b);
    assert_eq!(
        (&one.batch, &one.member, &one.mean, &one.std),
        (&many.batch, &many.member, &many.mean, &many.std)
    );
    assert!(one.prediction.is_none() && many.prediction.as_ref() == Some(&all));
    let used: std::collections::BTreeSet<usize> = one.member.iter().map(|&m| m as usize).collect();
    assert_eq!(used, model.elites().iter().copied().collect());
    for i in [0, 119, 500, 899] {
        let member = one.member[i] as usize;
        assert_eq!(one.mean.row(i), all.mean.slice(s![member, i, ..]));
    }
    // Samples scatter around the mean by the deviation.
    let z = (&one.batch.next_obs - &one.mean.slice(s![.., ..3])) / one.std.slice(s![.., ..3]);
    let var = z.mapv(|z| f64::from(z).powi(2)).mean().unwrap();
    assert!((var - 1.0).abs() < 0.1, "{var}");
    let mut fixed = model;
    fixed.deterministic = true;
    let step = fixed.step(&rows.obs, &rows.act, Members::One, &mut a);
    assert_eq!(step.batch.next_obs, step.mean.slice(s![.., ..3]));
}

#[test]
fn a_row_does_not_depend_on_the_rows_around_it_and_a_saved_model_is_the_model() {
    let rows = world(400, 4);
    let model = fit(&small(), &rows, 2);
    let all = model.predict(&rows.obs, &rows.act);
    let back =
        Ensemble::load(&Tensors::from_bytes(&model.save().to_bytes().unwrap()).unwrap(), &ThreadPool::new(1))
            .unwrap();
    let some = rows.select(&[3, 399, 7]);
    let few = back.predict(&some.obs, &some.act);
    for (i, row) in [3, 399, 7].into_iter().enumerate() {
        assert_eq!(few.mean.slice(s![.., i, ..]), all.mean.slice(s![.., row, ..]));
        assert_eq!(few.std.slice(s![.., i, ..]), all.std.slice(s![.., row, ..]));
    }
    assert!(Ensemble::load(&Tensors::default(), &ThreadPool::new(1)).is_err());
}

#[test]
fn bad_data_and_exploding_losses_are_named() {
    let fail = |cfg: &EnsembleConfig, rows: &Batch| {
        Ensemble::fit(cfg, rows, 0, &ThreadPool::new(2), |_, _| Ok(())).unwrap_err().to_string()
    };
    let message = fail(&small(), &world(70, 0));
    assert!(message.contains("too few rows") && message.contains("64"), "{message}");
    let mut rows = world(300, 0);
    rows.rew[17] = f32::INFINITY;
    assert!(fail(&small(), &rows).contains("`rew` at row 17"));
    // Targets near the largest f32: their square overflows.
    let mut rows = world(300, 0);
    rows.rew[17] = 1e30;
    let message = fail(&small(), &rows);
    assert!(
        message.contains("became") && (message.contains("update") || message.contains("epoch")),
        "{message}"
    );
    let mut rows = world(300, 0);
    rows.obs.column_mut(1).fill(4.0);
    let trainer = Trainer::new(&small(), &rows, 0, &ThreadPool::new(1)).unwrap();
    assert_eq!(trainer.report().constant_inputs, [1]);
}

#[test]
fn standardised_targets_learn_a_column_of_tiny_changes_and_predict_raw_units() {
    let mut rows = world(4000, 0);
    // The second column's changes become a thousand times smaller, the reward's mean far from 0.
    let (obs, mut next) = (rows.obs.column(1).to_owned(), rows.next_obs.column_mut(1));
    next.zip_mut_with(&obs, |next, obs| *next = obs + 1e-3 * (*next - obs));
    rows.rew += 50.0;
    let cfg = EnsembleConfig {
        standardise_targets: true,
        beta: 1.0,
        lr_end: Some(1e-5),
        max_updates: Some(1200),
        max_epochs: None,
        layer_norm: true,
        ..small()
    };
    let model = fit(&cfg, &rows, 2);
    let Prediction { mean, std } = model.predict(&rows.obs, &rows.act);
    let errors = |column: &dyn Fn(usize) -> f32, truth: &dyn Fn(usize) -> f32| {
        (0..rows.len()).map(|i| f64::from(column(i) - truth(i)).powi(2)).sum::<f64>() / rows.len() as f64
    };
    let tiny = errors(&|i| mean[[0, i, 1]] - rows.obs[[i, 1]], &|i| rows.next_obs[[i, 1]] - rows.obs[[i, 1]]);
    let still = errors(&|_| 0.0, &|i| rows.next_obs[[i, 1]] - rows.obs[[i, 1]]);
    assert!(tiny < 0.3 * still, "{tiny} against {still}");
    let reward = errors(&|i| mean[[0, i, 3]], &|i| rows.rew[i]);
    assert!(reward < 0.2, "{reward}");
    let spread = std.slice(s![0, .., 1]).mean().unwrap();
    assert!((5e-5..5e-4).contains(&spread), "the noise of that column is 1e-4, found {spread}");
}

#[test]
fn a_learning_rate_that_falls_ends_where_it_should() {
    let cfg = EnsembleConfig { lr: 1e-3, lr_end: Some(1e-5), max_updates: Some(100), ..small() };
    assert_eq!(cfg.lr_at(1), 1e-3);
    assert!((cfg.lr_at(51) - 0.505e-3).abs() < 1e-9 && cfg.lr_at(101) < 1.01e-5);
    assert_eq!(EnsembleConfig { lr_end: None, ..cfg.clone() }.lr_at(70), 1e-3);
    let error = EnsembleConfig { max_updates: None, ..cfg.clone() }.validate().unwrap_err().to_string();
    assert!(error.contains("max_updates"), "{error}");
    assert!(EnsembleConfig { lr_end: Some(1.0), ..cfg.clone() }.validate().is_err());
    assert!(EnsembleConfig { beta: 2.0, ..cfg }.validate().is_err());
}

#[test]
fn progress_says_how_many_updates_there_are_at_most() {
    let rows = world(1000, 0);
    let most = |max_epochs: Option<usize>, max_updates: Option<u64>| {
        let cfg = EnsembleConfig { max_epochs, max_updates, ..small() };
        let now = Trainer::new(&cfg, &rows, 0, &ThreadPool::new(1)).unwrap().now();
        (now.most_updates, now.updates_per_epoch)
    };
    let (by_epochs, epoch) = most(Some(3), None);
    assert_eq!(by_epochs, Some(3 * epoch));
    assert_eq!(most(Some(3), Some(5)).0, Some(5), "the smaller bound counts");
    assert_eq!(most(None, None).0, None, "only the hold-out error ends it");
}
