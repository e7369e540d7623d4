-- Payments that gateways told of and no order came for, oldest first.
CREATE INDEX notifications_of_money ON notifications (received_at, gateway COLLATE "C", event COLLATE "C")
    WHERE parked AND outcome IN ('paid', 'refund_failed');
