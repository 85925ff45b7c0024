//! The mazes of D4RL's AntMaze: walls, way-points, and where starts and goals are drawn.
//!
//! ```
//! use offing_mujoco::Maze;
//! let maze = Maze::umaze();
//! let path = maze.path([0.0, 0.0], [0.0, 8.0]);
//! assert_eq!(path, [[4.0, 0.0], [8.0, 0.0], [8.0, 4.0], [8.0, 8.0], [4.0, 8.0], [0.0, 8.0]]);
//! ```

use std::collections::VecDeque;

use offing::Rng;
use xmltree::Element;

/// Width of a cell in metres.
const CELL: f64 = 4.0;
/// Height of a wall in metres.
const WALL: f64 = 2.0;

/// A cell of a maze: row along y, column along x.
type Cell = (usize, usize);

/// A maze on a grid of square cells. The ant starts at the origin, the middle of the start cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maze {
    /// Rows along y of cells along x: `#` wall, `S` start, `E` goal of evaluation, `g` of the data, `G` of both.
    grid: &'static [&'static str],
    start: Cell,
    goal: Cell,
    /// Cells a dataset's goals are drawn from (D4RL draws those of its data from several, of evaluation from one).
    data_goals: Vec<Cell>,
}

impl Maze {
    /// The U-shaped maze.
    pub fn umaze() -> Self {
        Self::draw(&["#####", "#S  #", "### #", "#G  #", "#####"])
    }

    /// The medium maze.
    pub fn medium() -> Self {
        Self::draw(&[
            "########", "#S ##  #", "#  #  g#", "##   ###", "#  #   #", "#g#  # #", "#   #gE#", "########",
        ])
    }

    /// The large maze.
    pub fn large() -> Self {
        Self::draw(&[
            "############",
            "#S   #g    #",
            "# ## # # # #",
            "#    g #  g#",
            "# #### ### #",
            "# g# #     #",
            "## # # # ###",
            "#  #g g# G #",
            "############",
        ])
    }

    /// The maze of a task name, if it has one.
    pub fn of_task(task: &str) -> Option<Self> {
        super::find(task).ok()?.0.maze.map(|maze| maze())
    }

    fn draw(grid: &'static [&'static str]) -> Self {
        let mut maze = Self { grid, start: (0, 0), goal: (0, 0), data_goals: Vec::new() };
        (maze.start, maze.goal) = (maze.cells("S")[0], maze.cells("EG")[0]);
        maze.data_goals = maze.cells("gG");
        maze
    }

    /// The cells marked by one of these letters, row by row.
    fn cells(&self, letters: &str) -> Vec<Cell> {
        let row = |(r, row): (usize, &&'static str)| {
            row.match_indices(|c| letters.contains(c)).map(move |(c, _)| (r, c)).collect::<Vec<_>>()
        };
        self.grid.iter().enumerate().flat_map(row).collect()
    }

    /// Whether a cell is a wall.
    pub fn is_wall(&self, (row, column): Cell) -> bool {
        self.grid[row].as_bytes()[column] == b'#'
    }

    /// The open cells.
    pub fn open_cells(&self) -> Vec<Cell> {
        self.cells(" SEgG")
    }

    /// The cell whose goal evaluation uses.
    pub fn goal_cell(&self) -> Cell {
        self.goal
    }

    /// The cells from which D4RL draws the goals of a dataset.
    pub fn data_goal_cells(&self) -> &[Cell] {
        &self.data_goals
    }

    /// The middle of a cell.
    pub fn centre(&self, (row, column): Cell) -> [f64; 2] {
        let offset = |cell: usize, start: usize| (cell as f64 - start as f64) * CELL;
        [offset(column, self.start.1), offset(row, self.start.0)]
    }

    /// The open cell a point lies in; for a point inside a wall the nearest open one.
    pub fn cell(&self, xy: [f64; 2]) -> Cell {
        let distance = |cell: &Cell| {
            let [x, y] = self.centre(*cell);
            // Chebyshev distance: cells are squares.
            (x - xy[0]).abs().max((y - xy[1]).abs())
        };
        self.open_cells().into_iter().min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(self.start)
    }

    /// Way-points from one point to another: the middles of the cells after the first on a shortest way, then the
    /// target itself. The first is where to head now. Breadth-first; ties are broken in a fixed order.
    pub fn path(&self, from: [f64; 2], to: [f64; 2]) -> Vec<[f64; 2]> {
        let (start, target) = (self.cell(from), self.cell(to));
        // Searched from the target, so that the first step is read off at the start.
        let mut next = vec![vec![None; self.grid[0].len()]; self.grid.len()];
        next[target.0][target.1] = Some(target);
        let mut queue = VecDeque::from([target]);
        while let Some((r, c)) = queue.pop_front() {
            for cell in [(r, c - 1), (r, c + 1), (r + 1, c), (r - 1, c)] {
                // The border is wall, so no index leaves the grid.
                if !self.is_wall(cell) && next[cell.0][cell.1].is_none() {
                    next[cell.0][cell.1] = Some((r, c));
                    queue.push_back(cell);
                }
            }
        }
        let mut path = Vec::new();
        let mut here = start;
        while here != target {
            here = next[here.0][here.1].unwrap_or(target);
            path.push(self.centre(here));
        }
        path.pop();
        path.push(to);
        path
    }

    /// A goal in a cell, with D4RL's noise: U(0, 1) + U(0, 0.5) on each axis, not below 0.
    pub fn goal_in(&self, cell: Cell, rng: &mut Rng) -> [f64; 2] {
        let mut noise = || rng.range(0.0, 0.25 * CELL) + rng.range(0.0, 0.5) * 0.25 * CELL;
        self.centre(cell).map(|v| (v + noise()).max(0.0))
    }

    /// A start anywhere in the maze, as D4RL's multi-start data have it: an open cell, U(0, 1) from its middle on each
    /// axis, not below 0.
    pub fn start_anywhere(&self, rng: &mut Rng) -> [f64; 2] {
        let cells = self.open_cells();
        let cell = cells[rng.below(cells.len())];
        self.centre(cell).map(|v| (v + rng.range(0.0, 0.5) * 0.5 * CELL).max(0.0))
    }

    /// The walls as MJCF boxes.
    pub(crate) fn walls(&self) -> impl Iterator<Item = Element> {
        self.cells("#").into_iter().map(|(r, c)| {
            let [x, y] = self.centre((r, c));
            let mut geom = Element::new("geom");
            for (name, value) in [
                ("name", format!("block_{r}_{c}")),
                ("pos", format!("{x} {y} {}", WALL / 2.0)),
                ("size", format!("{} {} {}", CELL / 2.0, CELL / 2.0, WALL / 2.0)),
                ("type", "box".into()),
                ("contype", "1".into()),
                ("conaffinity", "1".into()),
            ] {
                geom.attributes.insert(name.into(), value);
            }
            geom
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_lie_where_d4rl_puts_them() {
        let goals = [Maze::umaze(), Maze::medium(), Maze::large()].map(|maze| maze.centre(maze.goal_cell()));
        assert_eq!(goals, [[0.0, 8.0], [20.0, 20.0], [32.0, 24.0]]);
    }

    #[test]
    fn every_open_cell_reaches_every_other_through_open_neighbours() {
        for maze in [Maze::umaze(), Maze::medium(), Maze::large()] {
            for a in maze.open_cells() {
                for b in maze.open_cells() {
                    let (from, to) = (maze.centre(a), maze.centre(b));
                    let mut here = from;
                    for step in maze.path(from, to) {
                        let moved = (step[0] - here[0]).abs() + (step[1] - here[1]).abs();
                        assert!(moved == CELL || a == b, "a step of {moved} from {here:?} to {step:?}");
                        let (r, c) = maze.cell(step);
                        assert!(!maze.is_wall((r, c)) && maze.centre((r, c)) == step);
                        here = step;
                    }
                    assert_eq!(here, to);
                }
            }
        }
    }

    #[test]
    fn a_point_inside_a_wall_counts_to_the_nearest_open_cell() {
        assert_eq!(Maze::umaze().cell([0.3, 2.4]), (1, 1));
        assert_eq!(Maze::umaze().cell([-3.0, -9.0]), (1, 1));
    }
}
