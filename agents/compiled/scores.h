/* Weights of attention. */

#pragma once

#include "products.h"

enum { ROWS = 24, DEEP = 128 };
/* Rows whose scores are taken at once; how many of their keys are multiplied with values at once. */

/* Scores become 2 to their power, in parts of the whole that is returned; *norm is the power of 2 of that whole. */
static float softened(float *score, count low, count high, count end, float scale, float *norm) {
    for (count j = 0; j < low; j++) score[j] = -INFINITY;
    for (count j = high; j < whole(end); j++) score[j] = -INFINITY;
    vec tops = all(-INFINITY), sums = all(0);
    for (count j = 0; j < end; j += WIDTH) tops = larger(load(score + j), tops);
    float top = highest(tops);
    for (count j = 0; j < end; j += WIDTH) {
        vec x = power((load(score + j) - top) * scale);
        sums += x;
        store(score + j, x);
    }
    float sum = total(sums);
    *norm = top * scale + log2f(sum);
    return sum;
}
