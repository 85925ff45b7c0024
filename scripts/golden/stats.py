"""Reference numbers for the tests of crates/offing/src/stats, by scipy and scikit-learn.

    python scripts/golden/stats.py
"""

import numpy as np
import scipy
import sklearn
from scipy.special import erfc
from scipy.stats import PermutationMethod, mannwhitneyu, pearsonr, rankdata, spearmanr, trim_mean, wilcoxon
from sklearn.metrics import average_precision_score, roc_auc_score

x = [0.3, 1.2, 1.2, -0.7, 2.5, 0.0, -1.1, 1.2, 3.3, 0.3]
y = [0.1, 0.9, 1.4, -0.2, 2.0, 0.1, -1.0, 0.4, 9.0, 0.1]
label = [0, 1, 0, 0, 1, 0, 0, 1, 1, 0]

print("scipy", scipy.__version__, "scikit-learn", sklearn.__version__)
print("RANKS", list(map(float, rankdata(x))))
print("SPEARMAN", repr(float(spearmanr(x, y).statistic)))
print("PEARSON", repr(float(pearsonr(x, y).statistic)))
print("AUROC", repr(float(roc_auc_score(label, x))))
print("AUPRC", repr(float(average_precision_score(label, x))))
print("QUANTILE", repr(float(np.quantile(x, 0.3))))

# crates/offing/src/stats/runs.rs
print("TRIM_MEAN", repr(float(trim_mean([3.0, -1.0, 8.5, 2.0, 100.0, 4.0, 0.5, 7.0, 6.0], 0.25))))
new, old = [[3.0, 5, 4], [10, 12, 11]], [[4.0, 2, 3], [11, 13, 9]]
print("IMPROVEMENT", repr(float(np.mean([mannwhitneyu(n, o).statistic / 9 for n, o in zip(new, old)]))))
sumo = [37.2, 24.5, 11.4, 73.1, 65.4, 70.3, 68.9, 74.6, 57.3, 84.1, 88.1, 81.9, 87.1, 101.2, 114.4]
mopo = [34.9, 19.4, 13.1, 65.0, 38.8, 74.8, 73.1, 45.6, 42.3, 76.6, 69.1, 75.4, 88.7, 83.9, 95.3]
found = wilcoxon(sumo, mopo, method="exact")
print("WILCOXON_PAPER", (float(found.statistic), float(found.pvalue)))
every = PermutationMethod(n_resamples=np.inf)
tied = wilcoxon([1.0, 2, 4, 5, 7, 9], [0.0, 3, 2, 3, 4, 5], method=every)
print("WILCOXON_TIED", float(tied.pvalue))
i = np.arange(80.0)
found = wilcoxon(np.sin(i), np.round(3 * np.cos(i)) / 10 - 0.15, method="asymptotic")
print("WILCOXON_MANY", (float(found.statistic), float(found.pvalue)))
found = wilcoxon(i % 7 - 2, np.zeros(80), method="asymptotic")
print("WILCOXON_MANY_TIED", (float(found.statistic), float(found.pvalue)))
print("ERFC", [float(x) for x in erfc([0.5, 1.9, 2.1, 5.0])])
