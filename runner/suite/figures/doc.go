// Package figures computes the statistics of a suite: the rates of agents with intervals of 95 %, and whether an agent
// does better in one suite than in another ([Compare]). It uses no random numbers: the same results always give the
// same figures.
//
// A rate answers one of two questions, and its interval belongs to the question:
//
//   - These tasks again ([TheseTasksAgain]): what would the agent's rate be if it tried the same tasks many times? Only
//     the attempts at a task differ by chance.
//   - Tasks like these ([TasksLikeThese]): what would its rate be on other tasks of the same kind? The choice of tasks
//     is chance too, so the interval is wider. Fewer than [MinTasks] tasks cannot say.
//
// Both intervals are a mean plus and minus a multiple of its standard error, after one success and one failure more
// were counted, as Agresti and Coull (1998) and Bonett and Price (2012) do for single and paired proportions. For
// these tasks again that is a passed and a failed attempt, and the variance is the one within tasks. Tasks that were
// tried once do not show theirs; it is at most that of all of them pooled. For tasks like these, it is a task that
// always passes and one that never does, and the variance is that of the tasks' rates, with Student's quantile.
//
// Other methods were measured too. The bootstrap over tasks covers 29 to 68 % with one attempt at each task, and an
// interval without a width at 0 % and 100 %. Wilson's interval covers 84 % near 0 % and 100 %. The exact interval of
// Clopper and Pearson must pool all attempts, so it is several times as wide where tasks differ much: it cannot use
// that some always pass. TestCoverage measures ours with 1 to 100 tasks, 1 to 10 attempts, and tasks that are alike,
// that differ, and that always or never pass. The lowest coverage must be 93 %; docs/suites.md has a table.
//
// A comparison pairs the agents' rates task by task. The variance of a task's difference is the one that it would have
// if all verdicts of the task were dealt to both agents at random, as in the test of Cochran, Mantel and Haenszel;
// with one attempt each, that is McNemar's test. Again one task more is counted that only the first agent passes, and
// one that only the second does.
package figures
