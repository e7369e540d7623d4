//! Kendall's rank correlation with ties (tau-b) in O(n log n): pairs out of order are counted while sorting.

/// Tau-b of pairs whose first elements differ. -1 reversed, 1 the same order.
pub(super) fn tau_b(pairs: &[(u64, u64)]) -> f64 {
    let mut by_first = pairs.to_vec();
    by_first.sort_unstable();
    let mut second: Vec<u64> = by_first.into_iter().map(|(_, second)| second).collect();
    let swaps = inversions(&mut second);
    let all = choose_2(pairs.len());
    let ties: f64 = second.chunk_by(|a, b| a == b).map(|run| choose_2(run.len())).sum();
    (all - ties - 2.0 * swaps as f64) / (all * (all - ties)).sqrt()
}

fn choose_2(n: usize) -> f64 {
    n as f64 * (n as f64 - 1.0) / 2.0
}

/// Sorts, and counts the pairs that were out of order.
fn inversions(values: &mut [u64]) -> u64 {
    if values.len() < 2 {
        return 0;
    }
    let middle = values.len() / 2;
    let mut count = inversions(&mut values[..middle]) + inversions(&mut values[middle..]);
    let mut merged = Vec::with_capacity(values.len());
    let (mut left, mut right) = (0, middle);
    while left < middle || right < values.len() {
        if right == values.len() || (left < middle && values[left] <= values[right]) {
            merged.push(values[left]);
            left += 1;
        } else {
            count += (middle - left) as u64;
            merged.push(values[right]);
            right += 1;
        }
    }
    values.copy_from_slice(&merged);
    count
}

#[test]
fn tau_is_that_of_counting_every_pair() {
    let pairs = |seconds: &[u64]| (0u64..).zip(seconds.iter().copied()).collect::<Vec<_>>();
    assert_eq!(tau_b(&pairs(&[1, 2, 3, 4])), 1.0);
    assert_eq!(tau_b(&pairs(&[4, 3, 2, 1])), -1.0);
    let mixed = pairs(&[3, 1, 2, 2, 5, 9, 5, 0, 7]);
    let (mut agree, mut disagree, mut ties) = (0.0, 0.0, 0.0);
    for a in 0..mixed.len() {
        for b in a + 1..mixed.len() {
            match mixed[a].1.cmp(&mixed[b].1) {
                std::cmp::Ordering::Less => agree += 1.0,
                std::cmp::Ordering::Greater => disagree += 1.0,
                std::cmp::Ordering::Equal => ties += 1.0,
            }
        }
    }
    let all: f64 = agree + disagree + ties;
    let expected = (agree - disagree) / (all * (all - ties)).sqrt();
    assert!((tau_b(&mixed) - expected).abs() < 1e-12);
}
