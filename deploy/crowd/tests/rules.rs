//! A house that breaks a rule on purpose is caught, one test per rule; an honest one passes, and meets every rule.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod house;

use clap::Parser as _;
use lockgate_crowd::{Options, Outcome, Report, rules::Rule, run};

async fn visit(lie: house::Lie, further: &[&str]) -> Report {
    let address = house::open(lie).await;
    let (target, burst) = (format!("http://{address}"), house::BURST.to_string());
    let arguments =
        ["lockgate-crowd", &target, "test", "--shoppers", "80", "--connections", "8", "--think-ms", "50"];
    let more = ["--programs", "50", "--seed", "11", "--burst", &burst];
    let all = arguments.iter().chain(&more).chain(further);
    let mut options = Options::try_parse_from(all).unwrap();
    // An honest house lets everybody through; with others one look at the lie is enough.
    options.seconds_max = if lie.is_none() { 120 } else { 6 };
    let plan = options.plan().unwrap();
    run(&plan, |_| {}).await.unwrap()
}

async fn is_caught(rule: Rule, further: &[&str]) {
    let report = visit(Some(rule), further).await;
    let finding = &report.rules[rule as usize];
    assert!(finding.broken > 0 && !finding.examples.is_empty(), "{rule:?} was not caught:\n{report}");
    assert_eq!(report.verdict, Outcome::Broken);
}

#[tokio::test]
async fn an_honest_house_passes_and_every_rule_is_met() {
    let report = visit(None, &["--buy"]).await;
    assert_eq!(report.verdict, Outcome::Kept, "{report}");
    let unmet: Vec<&str> =
        report.rules.iter().filter(|rule| rule.checked == 0).map(|rule| rule.rule).collect();
    assert!(unmet.is_empty(), "never checked: {unmet:?}\n{report}");
    assert_eq!((report.people.entered, report.people.on_their_way), (80, 0), "{report}");
    assert!(report.people.bought > 0);
}

macro_rules! caught {
    ($($name:ident: $rule:ident $further:expr;)*) => {$(
        #[tokio::test]
        async fn $name() {
            is_caught(Rule::$rule, &$further).await;
        }
    )*};
}

caught! {
    an_answer_outside_the_contract: Contract [];
    a_body_without_a_member: Shape [];
    a_429_without_retry_after: RetryAfter [];
    a_personal_status_that_caches_may_keep: Private [];
    a_public_status_that_sets_a_cookie: Public [];
    a_number_nought: NumberFromOne [];
    a_number_that_changes: NumberFixed [];
    two_accounts_with_one_number: NumberUnique [];
    a_number_that_does_not_come: NumberInTime [];
    p1_people_ahead_that_rise: AheadFalls [];
    people_ahead_that_do_not_add_up: AheadAddsUp [];
    a_board_that_falls: BoardRises [];
    a_state_nobody_asked_for: Edges [];
    k2_another_place_for_the_same_account: OnePlace [];
    a_turn_before_its_number: TurnAfterCall [];
    a_call_that_is_not_told: CallIsTold [];
    a_later_number_that_goes_first: InOrder [];
    another_right_for_the_same_place: SameRight [];
    p3_a_wait_told_to_whom_it_is_not_due: WaitHonest [];
    l6_admissions_beyond_rate_and_burst: Rate ["--follow-public-status"];
    s2_garbage_that_is_taken: GarbageRefused [];
    one_unit_paid_for_twice: UnitOnce ["--buy"];
}
