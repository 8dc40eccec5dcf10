"""Prints the literals in the tests of crates/agent, computed in NumPy from the equations alone.

Run: .venv/bin/python tests/golden/math_literals.py
The equations are written in the plainest way: full sums and products, no recursion where the Rust code recurses.
"""

import numpy as np


def show(name, values):
    print(f"{name}: " + " ".join(f"{v:.10g}" for v in np.atleast_1d(values)))


def h(x, e=0.001):
    return np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + e * x


def h_inverse(y, e=0.001):
    return np.sign(y) * (((np.sqrt(1 + 4 * e * (np.abs(y) + 1 + e)) - 1) / (2 * e)) ** 2 - 1)


def rescaling():
    show("h of 0 1 3 -8 100 1e6", h(np.array([0, 1, 3, -8, 100, 1e6])))
    show("h inverse of 0 0.5 -2.008 10 1999", h_inverse(np.array([0, 0.5, -2.008, 10, 1999.0])))


def ladders():
    n = 16
    i = np.arange(n)
    beta = 0.1 / (1 + np.exp(-8 * (2 * i - (n - 2)) / (n - 2)))
    beta[0], beta[-1] = 0, 0.1
    show("beta 16", beta)
    gamma = 1 - np.exp(((n - 1 - i) * np.log(1 - 0.9997) + i * np.log(1 - 0.97)) / (n - 1))
    show("gamma 16", gamma)
    show("beta 3, middle", 0.1 / (1 + np.exp(-8 * (2 - 1) / 1)))
    show("gamma 3, middle", 1 - np.sqrt((1 - 0.9997) * (1 - 0.97)))
    show("actor epsilon 8", 0.4 ** (1 + 7 * np.arange(8) / 7))
    show("actor epsilon 0, 64, 127 of 128", 0.4 ** (1 + 7 * np.array([0, 64, 127]) / 127))


def direct_returns(gamma, r, d, v, lam):
    """G_t as the sum over k of the product of the coefficients, each product computed from scratch."""
    last = len(v) - 1
    out = []
    for t in range(last):
        total = r[t] + gamma * d[t] * v[t + 1]
        for k in range(1, last - t):
            product = np.prod([gamma * d[t + i - 1] * lam[t + i] for i in range(1, k + 1)])
            total += product * (r[t + k] + gamma * d[t + k] * v[t + k + 1] - v[t + k])
        out.append(total)
    return np.array(out + [v[last]])


def returns():
    r = np.array([1.0, -2.0, 3.0, 0.5, 9.0])
    v = np.array([4.0, 1.0, -1.0, 2.0, 5.0])
    ones = np.ones(5)
    cut = np.array([1.0, 0.0, 1.0, 1.0, 1.0])
    lam = np.array([0.3, 0.9, 0.5, 0.25, 0.7])
    show("returns lambda 0", direct_returns(0.9, r, ones, v, 0 * ones))
    show("returns lambda 1", direct_returns(0.9, r, ones, v, ones))
    show("returns mixed", direct_returns(0.9, r, ones, v, lam))
    show("returns mixed, a_1 ends the game", direct_returns(0.9, r, cut, v, lam))
    show("returns mixed, 3 valid", direct_returns(0.9, r[:3], ones[:3], v[:3], lam[:3]))
    q, p = np.array([0.5, -2.008, 10.0]), np.array([0.2, 0.5, 0.3])
    show("expected value", p @ h_inverse(q))
    show("greedy value", h_inverse(10.0))
    show("td error, Q 0.25, G 3", 0.25 - h(3.0))


def traces():
    q, p = np.array([1.0, 0.995, -0.5, 1.004]), np.array([0.4, 0.3, 0.1, 0.2])
    for kappa in (0.0, 0.006, 0.01):
        lam = [0.95 * sum(p[a] for a in range(4) if q[i] >= q[a] - kappa * abs(q[a])) for i in range(4)]
        show(f"soft watkins kappa {kappa}", lam)
    q = np.array([-1.0, -1.005])
    show("soft watkins negative, action 1", 0.95 * sum(0.5 for a in (0, 1) if q[1] >= q[a] - 0.01 * abs(q[a])))


def moments():
    d, m1, m2 = 0.99, 0.0, 0.0
    batches = [([1.0, 2.0, 6.0], [1.0, 0.5, 0.25]), ([-1.0, 3.0], [0.2, 1.0])]
    for n, (x, w) in enumerate(batches, 1):
        x, w = np.array(x), np.array(w)
        mean, square = (w @ x) / w.sum(), (w @ x**2) / w.sum()
        show(f"batch {n} mean, mean square, std", [mean, square, np.sqrt(square - mean**2)])
        m1, m2 = d * m1 + (1 - d) * mean, d * m2 + (1 - d) * square
        a, b = m1 / (1 - d**n), m2 / (1 - d**n)
        show(f"running mean, std after {n}", [a, np.sqrt(b - a**2)])
    show("population std of 1 2 6", np.std([1.0, 2.0, 6.0]))


def policies():
    logits = np.array([1.0, 2.0, 0.0])
    log_p = logits - np.log(np.exp(logits).sum())
    show("log softmax of 1 2 0", log_p)
    tempered = np.exp(log_p / 0.25)
    show("target policy, tau 0.25", tempered / tempered.sum())
    target = np.array([1e-4 / 3, 1 - 1e-4 + 1e-4 / 3, 1e-4 / 3])
    show("epsilon greedy", target)
    show("cross entropy", -(target @ log_p))
    other = np.array([0.5, 0.0, 0.25])
    log_o = other - np.log(np.exp(other).sum())
    show("log softmax of 0.5 0 0.25", log_o)
    show("KL of 1 2 0 to 0.5 0 0.25", np.exp(log_p) @ (log_p - log_o))


def similarity(d2, mean, k):
    d = np.maximum(np.array(d2) / mean - 0.008, 0) if mean > 0 else np.zeros(len(d2))
    return np.sqrt(k * (1e-4 / (d + 1e-4)).mean()) + 0.001


def ngu():
    show("s, r of d2 0 1/256 0.5 1.5, mean 0.5", [s := similarity([0, 1 / 256, 0.5, 1.5], 0.5, 4), 1 / s])
    show("the same with k = 10", [s := similarity([0, 1 / 256, 0.5, 1.5], 0.5, 10), 1 / s])
    show("s, r of ten equal", [s := similarity([0.0] * 10, 0.0, 10), 1 / s])
    show("s of 64 equal", similarity([0.0] * 64, 0.0, 64))
    # One dimension, k = 2: entries 0, 1, 3, then 1.5. Before 1 there is 0 alone, before 3 the neighbours are 1 and 0,
    # before 1.5 they are 1 and 0 or 3. Then an episode of 0, 5.
    seen = []
    for x, d2 in [(1, [1.0]), (3, [4.0, 9.0]), (1.5, [0.25, 2.25]), (5, [25.0])]:
        seen += d2
        show(f"observe {x}: d2m, r", [np.mean(seen), 1 / similarity(d2, np.mean(seen), 2)])
    show("alpha, err 3 mean 1 std 0.5 scale 0.5", 1 + 0.5 * (3 - 1) / 0.5)


def bandit():
    g, arms = 0.9, 3
    n, x, z = np.zeros(arms), np.zeros(arms), np.zeros(arms)
    for a, r in [(0, 1.0), (1, 4.0), (2, 2.0), (1, 6.0)]:
        one = np.eye(arms)[a]
        n, x, z = g * n + one, g * x + r * one, g * z + r * r * one
    show("N", n)
    show("X", x)
    show("Z", z)
    total = n.sum()
    scale2 = z.sum() / total - (x.sum() / total) ** 2
    show("n, scale2", [total, scale2])
    rate = np.log(total) / n
    variance = np.maximum(z / n - (x / n) ** 2, 0)
    show("scores", x / n + np.sqrt(rate * (variance + np.sqrt(2 * rate) * scale2)))


if __name__ == "__main__":
    for part in (rescaling, ladders, returns, traces, moments, policies, ngu, bandit):
        print(f"-- {part.__name__}")
        part()
