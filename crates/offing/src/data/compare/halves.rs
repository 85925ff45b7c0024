//! Two random halves of a dataset, apart by episode: how much a set differs from itself.

use std::ops::Range;

use super::super::Dataset;
use crate::rng::Rng;

/// With fewer episodes than this, episodes are cut.
const EPISODES: usize = 4;
/// Into about so many pieces in all.
const PIECES: usize = 20;

/// Row numbers of the halves, in order. Rows of one episode resemble each other, so whole episodes go one way or the
/// other; a log of one or two long ones is cut into pieces.
pub(super) fn halves(data: &Dataset, seed: u64) -> [Vec<usize>; 2] {
    let mut pieces = match data.episodes.len() {
        ..EPISODES => pieces(&data.episodes, data.rows.len().div_ceil(PIECES).max(1)),
        _ => data.episodes.clone(),
    };
    let mut rng = Rng::stream(seed, "halves", 0);
    for i in (1..pieces.len()).rev() {
        pieces.swap(i, rng.below(i + 1));
    }
    let mut halves = [Vec::new(), Vec::new()];
    for piece in pieces {
        let smaller = usize::from(halves[1].len() < halves[0].len());
        halves[smaller].extend(piece);
    }
    halves.iter_mut().for_each(|half| half.sort_unstable());
    halves
}

fn pieces(episodes: &[Range<usize>], longest: usize) -> Vec<Range<usize>> {
    let cut = |e: &Range<usize>| {
        let (start, end) = (e.start, e.end);
        (start..end).step_by(longest).map(move |from| from..(from + longest).min(end)).collect::<Vec<_>>()
    };
    episodes.iter().flat_map(cut).collect()
}

/// So many of these rows, drawn at random without replacement, in order; all where there are no more.
pub(super) fn draw(mut rows: Vec<usize>, count: usize, rng: &mut Rng) -> Vec<usize> {
    if rows.len() > count {
        for i in 0..count {
            let other = i + rng.below(rows.len() - i);
            rows.swap(i, other);
        }
        rows.truncate(count);
        rows.sort_unstable();
    }
    rows
}
