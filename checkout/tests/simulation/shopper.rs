//! Shoppers: they claim with retries, pay, fail, forget, cancel, and do it all in two tabs.

use std::sync::Arc;

use http::StatusCode;
use lockgate_checkout::{
    app::Grant,
    claim::{Wish, claim_id},
    payment::PaymentId,
};
use lockgate_shared::{
    admission_token::{Admission, AdmissionToken},
    clock::Clock as _,
    ids::{AccountHash, ClaimId},
    problem::Problem,
};
use tokio::time::sleep;

use crate::{
    bank,
    house::{HOLD_SECONDS, House, ITEMS, PATIENCE},
    world::World,
};

/// Tries of one thing before a shopper gives up.
const TRIES_MAX: u32 = 6;

/// One shopper.
#[derive(Clone)]
struct Shopper {
    n: u32,
    token: AdmissionToken,
    house: Arc<House>,
}

/// What a shopper has in mind with what it won.
#[derive(Clone, Copy, Debug)]
enum Habit {
    Pays,
    FailsThenPays,
    Forgets,
    Cancels,
    StartsAndForgets,
    CancelsWhilePaying,
    PaysInTwoTabs,
    PaysAtTheLastMoment,
    PaysTooLate,
}

const HABITS: [Habit; 9] = [
    Habit::Pays,
    Habit::FailsThenPays,
    Habit::Forgets,
    Habit::Cancels,
    Habit::StartsAndForgets,
    Habit::CancelsWhilePaying,
    Habit::PaysInTwoTabs,
    Habit::PaysAtTheLastMoment,
    Habit::PaysTooLate,
];

/// What became of a request.
enum Came<T> {
    /// An answer.
    Done(T),
    /// A refusal that repeating does not change.
    Refused(Problem),
    /// Nothing certain.
    Unknown,
}

/// Shops: one or two purchases, one after another, beginning within `rush_ms`.
pub async fn shop(house: Arc<House>, n: u32, rush_ms: u32) {
    let world = Arc::clone(&house.world);
    let mut account = [7; 16];
    account[..4].copy_from_slice(&n.to_be_bytes());
    let admission = Admission {
        account: AccountHash::from_bytes(account),
        sale: &world.sale,
        jti: &format!("token-{n}"),
        issued_at: world.clock.now(),
        expires_at: world.clock.now().plus_seconds(600),
        epoch: 0,
    };
    let token = AdmissionToken::sign(&admission, &house.ring).unwrap();
    let token = AdmissionToken::verify(&token, &house.ring, world.clock.now()).unwrap();
    let shopper = Shopper { n, token, house };
    sleep(world.between_ms(0, rush_ms)).await;
    for visit in 0..=world.below(2) {
        shopper.visit(&world, visit).await;
        sleep(world.between_ms(100, 4_000)).await;
    }
}

impl Shopper {
    async fn visit(&self, world: &Arc<World>, visit: u32) {
        let (item, _) = ITEMS[world.below(ITEMS.len() as u32) as usize];
        let wish = Wish {
            item: item.parse().unwrap(),
            quantity: 1 + world.below(3) / 2,
            email: None,
            language: None,
        };
        let key = format!("key-{}-{visit}", self.n);
        let habit = HABITS[world.below(HABITS.len() as u32) as usize];
        if world.chance(250) {
            let (other, world, key, wish) = (self.clone(), Arc::clone(world), key.clone(), wish.clone());
            tokio::spawn(async move {
                sleep(world.between_ms(0, 400)).await;
                other.claim(&world, &key, &wish).await;
            });
        }
        let Some(order) = self.claim(world, &key, &wish).await else { return };
        world.note(format!("shopper {}: {habit:?} for {}", self.n, world.claim(order)));
        if world.chance(200) {
            self.claim(world, &key, &wish).await;
        }
        self.follow(world, order, habit).await;
        if world.chance(200) {
            self.claim(world, &key, &wish).await;
        }
    }

    async fn follow(&self, world: &Arc<World>, order: ClaimId, habit: Habit) {
        sleep(world.between_ms(100, 3_000)).await;
        match habit {
            Habit::Forgets => {}
            Habit::Pays => self.pay(world, order, true).await,
            Habit::FailsThenPays => {
                self.pay(world, order, false).await;
                self.pay(world, order, true).await;
            }
            Habit::Cancels => self.cancel(world, order).await,
            Habit::StartsAndForgets => drop(self.start(world, order).await),
            Habit::CancelsWhilePaying => {
                let payment = self.start(world, order).await;
                if let Some(payment) = payment {
                    let (world, house) = (Arc::clone(world), Arc::clone(&self.house));
                    tokio::spawn(async move {
                        sleep(world.between_ms(0, 1_500)).await;
                        bank::finish(&world, &house.checkouts, payment, true);
                    });
                }
                sleep(world.between_ms(0, 1_500)).await;
                self.cancel(world, order).await;
            }
            Habit::PaysInTwoTabs => {
                let (other, there) = (self.clone(), Arc::clone(world));
                let tab = tokio::spawn(async move { other.pay(&there, order, true).await });
                self.pay(world, order, true).await;
                let _ = tab.await;
            }
            Habit::PaysAtTheLastMoment => {
                let Some(payment) = self.start(world, order).await else { return };
                sleep(world.between_ms((HOLD_SECONDS - 4) * 1_000, (HOLD_SECONDS + 2) * 1_000)).await;
                bank::finish(world, &self.house.checkouts, payment, true);
            }
            Habit::PaysTooLate => {
                let Some(payment) = self.start(world, order).await else { return };
                sleep(world.between_ms(HOLD_SECONDS * 1_000, (HOLD_SECONDS + 6) * 1_000)).await;
                bank::finish(world, &self.house.checkouts, payment, true);
            }
        }
    }

    fn grant(&self) -> Grant {
        Grant { has_access_key: false, accounts: vec![(self.house.world.sale.clone(), self.token.sub)] }
    }

    /// Claims, again and again with the same key, until there is an answer.
    async fn claim(&self, world: &Arc<World>, key: &str, wish: &Wish) -> Option<ClaimId> {
        let id = claim_id(&world.sale, &self.token.sub, key);
        for _ in 0..TRIES_MAX {
            let was_won = world.was_acknowledged(id);
            let (token, key, wish) = (self.token.clone(), key.to_owned(), wish.clone());
            let came =
                self.ask(move |app, sale| async move { app.claim(&sale, &token, &key, &wish).await }).await;
            match came {
                Came::Done(claimed) => {
                    let name = world.claim(id);
                    world.note(format!("shopper {}: won {name} {:?}", self.n, claimed.hold.units));
                    world.acknowledge(id, &claimed.hold.units);
                    return Some(id);
                }
                Came::Refused(problem) if was_won => {
                    let name = world.claim(id);
                    world.violate(&format!("{name} was acknowledged, and then refused: {}", problem.code));
                    return None;
                }
                Came::Refused(problem) => {
                    world.note(format!("shopper {}: {} for {}", self.n, problem.code, world.claim(id)));
                    return None;
                }
                Came::Unknown => sleep(world.between_ms(100, 1_500)).await,
            }
        }
        None
    }

    /// Starts paying and answers which payment to finish.
    async fn start(&self, world: &Arc<World>, order: ClaimId) -> Option<PaymentId> {
        for _ in 0..TRIES_MAX {
            let grant = self.grant();
            match self.ask(move |app, _| async move { app.pay(order, &grant).await }).await {
                Came::Done(url) => return url.rsplit('/').next().and_then(|id| id.parse().ok()),
                Came::Refused(problem) => {
                    world.note(format!("shopper {}: no payment, {}", self.n, problem.code));
                    return None;
                }
                Came::Unknown => sleep(world.between_ms(100, 1_500)).await,
            }
        }
        None
    }

    async fn pay(&self, world: &Arc<World>, order: ClaimId, is_paid: bool) {
        let Some(payment) = self.start(world, order).await else { return };
        sleep(world.between_ms(100, 4_000)).await;
        bank::finish(world, &self.house.checkouts, payment, is_paid);
        if world.chance(500) {
            sleep(world.between_ms(0, 500)).await;
            let _ = self.ask(move |app, _| async move { app.callback(payment).await }).await;
        }
    }

    async fn cancel(&self, world: &Arc<World>, order: ClaimId) {
        for _ in 0..TRIES_MAX {
            let grant = self.grant();
            match self.ask(move |app, _| async move { app.cancel(order, &grant).await }).await {
                Came::Done(cancelled) if cancelled.is_done => return,
                Came::Refused(_) => return,
                Came::Done(_) | Came::Unknown => sleep(world.between_ms(100, 1_500)).await,
            }
        }
    }

    async fn ask<T, F>(
        &self,
        act: impl FnOnce(Arc<lockgate_checkout::App>, Arc<lockgate_shared::catalog::StoredSale>) -> F,
    ) -> Came<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Problem>> + Send + 'static,
    {
        let sale = self.house.sale();
        let asked = self.house.checkouts.ask(&self.house.world, |app| act(app, sale));
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(Ok(answer))) => Came::Done(answer),
            Ok(Ok(Err(problem))) if problem.status.is_server_error() => {
                if problem.status == StatusCode::INTERNAL_SERVER_ERROR {
                    self.house.world.violate(&format!("an internal error: {problem:?}"));
                }
                Came::Unknown
            }
            Ok(Ok(Err(problem))) => Came::Refused(problem),
            Ok(Err(_)) | Err(_) => Came::Unknown,
        }
    }
}
