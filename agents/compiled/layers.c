/* Norms, gates, rotary positions and scores of tokens, forwards and backwards, with nothing kept on the way.

Legend: N rows, D width, T tokens, H heads, V vocabulary.
*/

#include "rows.h"

/* -- silu(gate) * up ---------------------------------------------------------------------------------------------- */

void turnwise_gate(count n, const float *gate, const float *up, float *out) { gated(n, gate, up, out); }

void turnwise_gate_back(count n, const float *grad, const float *gate, const float *up, float *by_gate, float *by_up) {
    gated_back(n, grad, gate, up, by_gate, by_up);
}

/* -- x / rms(x) * weight ------------------------------------------------------------------------------------------ */

void turnwise_norm(count N, count D, float eps, const float *x, const float *weight, float *out, float *inverse) {
    for (count row = 0; row < N; row++) inverse[row] = normed(D, eps, x + row * D, weight, out + row * D);
}

void turnwise_norm_back(count N, count D, const float *grad, const float *x, const float *weight, const float *inverse,
                        float *by_x) {
    for (count row = 0; row < N; row++, x += D, grad += D, by_x += D) {
        vec along = all(0);
        EACH(D, along += some(grad + i, k) * some(weight + i, k) * some(x + i, k);)
        float by = inverse[row], less = total(along) / D * by * by * by;
        EACH(D, put(by_x + i, some(grad + i, k) * some(weight + i, k) * by - some(x + i, k) * less, k);)
    }
}

/* -- rotary positions --------------------------------------------------------------------------------------------- */

/* A head's numbers in x lie side by side; its heads are h apart, its tokens t. out is [T, H, D]. */
INLINE void turn(const int back, count T, count H, count D, const float *x, count t, count h, const float *cosine,
                 const float *sine, float *out) {
    for (count token = 0; token < T; token++, cosine += D, sine += D)
        for (count head = 0; head < H; head++, out += D) turned(back, D, x + token * t + head * h, cosine, sine, out);
}

void turnwise_turn(count T, count H, count D, const float *x, count t, count h, const float *cosine, const float *sine,
                   float *out) {
    turn(0, T, H, D, x, t, h, cosine, sine, out);
}

void turnwise_turn_back(count T, count H, count D, const float *x, count t, count h, const float *cosine,
                        const float *sine, float *out) {
    turn(1, T, H, D, x, t, h, cosine, sine, out);
}

/* -- log softmax(logits)[token], and the entropy of softmax(logits) ------------------------------------------------ */

enum { CHUNK = 64 * WIDTH };
/* Numbers of a sum: a sum of such sums is rounded less. */

/* *norm is the logarithm of the sum of the exponentials. */
void turnwise_score(count N, count V, const float *logits, const ptrdiff_t *token, float *logp, float *entropy,
                    float *norm) {
    for (count row = 0; row < N; row++, logits += V) {
        vec tops = all(-INFINITY), sum = all(0), along = all(0);
        count j = 0;
        for (; j + WIDTH <= V; j += WIDTH) tops = larger(load(logits + j), tops);
        float top = highest(tops);
        for (; j < V; j++) top = logits[j] > top ? logits[j] : top;
        j = 0;
        while (j + WIDTH <= V) {
            vec sums = all(0), alongs = all(0);
            for (count end = j + least(CHUNK, V - j); j + WIDTH <= end; j += WIDTH) {
                vec below = larger(all(-1e5f), load(logits + j) - top), x = power(below * LOG2_E); /* 0 * -inf is NaN */
                sums += x;
                alongs += x * below;
            }
            sum += sums;
            along += alongs;
        }
        for (; j < V; j++) {
            float below = logits[j] - top < -1e5f ? -1e5f : logits[j] - top, x = exp2f(below * LOG2_E);
            sum[j % WIDTH] += x;
            along[j % WIDTH] += x * below;
        }
        float all_of_it = total(sum), log_sum = logf(all_of_it);
        norm[row] = top + log_sum;
        logp[row] = logits[token[row]] - top - log_sum;
        entropy[row] = log_sum - total(along) / all_of_it;
    }
}

void turnwise_score_back(count N, count V, const float *grad, const float *logits, const ptrdiff_t *token,
                         const float *norm, float *by_logits) {
    for (count row = 0; row < N; row++, logits += V, by_logits += V) {
        float by = grad[row], less = norm[row];
        EACH(V, put(by_logits + i, -by * power((some(logits + i, k) - less) * LOG2_E), k);)
        by_logits[token[row]] += by;
    }
}
