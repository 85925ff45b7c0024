"""The reference numbers in the tests of crates/offing/src/stats.rs, by scipy and scikit-learn.

    python scripts/golden/stats.py
"""

import numpy as np
import scipy
import sklearn
from scipy.stats import pearsonr, rankdata, spearmanr
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
