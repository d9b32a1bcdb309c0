package sqs

import (
	"encoding/json"
	"slices"
)

// statement is one permission of a queue's policy as AddPermission writes it
// (SQS-F-65). The emulator keeps permissions and enforces none.
type statement struct {
	Sid       string          `json:"Sid"`
	Effect    string          `json:"Effect"`
	Principal json.RawMessage `json:"Principal"`
	Action    any             `json:"Action"`
	Resource  string          `json:"Resource"`
}

type policy struct {
	Version   string            `json:"Version"`
	ID        string            `json:"Id,omitempty"`
	Statement []json.RawMessage `json:"Statement"`
}

// labels of a policy that is not of our making are still found by their Sid.
func parseStatements(doc string) []statement {
	var p struct{ Statement []statement }
	if json.Unmarshal([]byte(doc), &p) != nil {
		return nil
	}
	return p.Statement
}

var actionNames = []string{
	"*", "SendMessage", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility", "GetQueueAttributes", "GetQueueUrl",
	"ListDeadLetterSourceQueues", "PurgeQueue", "ListQueues", "ListQueueTags",
}

// maxActions is how many actions a permission may name.
const maxActions = 7

func (q *queue) addPermission(r *request) *apiError {
	switch {
	case !queueName(r.label) || len(r.label) > 80:
		return invalidValue(r.label, "Label", "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length.")
	case len(r.accounts) == 0:
		return missing("PrincipalId")
	case len(r.actions) == 0:
		return missing("ActionName")
	case len(r.actions) > maxActions:
		return failure(403, modelled+"OverLimit", "OverLimit", "%d Actions were found, maximum allowed is %d.", len(r.actions), maxActions)
	}
	for _, s := range q.statements {
		if s.Sid == r.label {
			return invalidValue(r.label, "Label", "Already exists.")
		}
	}
	s := statement{Sid: r.label, Effect: "Allow", Resource: q.arn}
	var principals, actions []string
	for _, a := range r.accounts {
		if len(a) != 12 || !digits(a) {
			return invalidValue(a, "PrincipalId", "Unable to verify.")
		}
		principals = append(principals, "arn:aws:iam::"+a+":root")
	}
	for _, a := range r.actions {
		if !slices.Contains(actionNames, a) {
			return invalidValue("SQS:"+a, "ActionName", "Please refer to the appropriate WSDL for a list of valid actions. ")
		}
		actions = append(actions, "SQS:"+a)
	}
	s.Principal, _ = json.Marshal(map[string]any{"AWS": oneOrMany(principals)})
	s.Action = oneOrMany(actions)
	raw, err := json.Marshal(s)
	if err != nil {
		return invalid("the permission can't be written: %v", err)
	}
	p, err := q.parsePolicy()
	if err != nil {
		return badAttribute("Policy", "The queue's policy is not one that permissions can be added to.")
	}
	p.Statement = append(p.Statement, raw)
	return q.writePolicy(p)
}

func (q *queue) removePermission(label string) *apiError {
	i := slices.IndexFunc(q.statements, func(s statement) bool { return s.Sid == label })
	if i < 0 {
		return invalidValue(label, "Label", "can't find label.")
	}
	p, err := q.parsePolicy()
	if err != nil || i >= len(p.Statement) {
		return badAttribute("Policy", "The queue's policy is not one that permissions can be taken from.")
	}
	p.Statement = slices.Delete(p.Statement, i, i+1)
	return q.writePolicy(p)
}

func (q *queue) parsePolicy() (policy, error) {
	p := policy{Version: "2008-10-17", ID: q.arn + "/SQSDefaultPolicy"}
	if q.policy == "" {
		return p, nil
	}
	err := json.Unmarshal([]byte(q.policy), &p)
	return p, err
}

func (q *queue) writePolicy(p policy) *apiError {
	if len(p.Statement) == 0 {
		q.policy, q.statements = "", nil
		return nil
	}
	doc, err := json.Marshal(p)
	if err != nil {
		return invalid("the policy can't be written: %v", err)
	}
	q.policy = string(doc)
	q.statements = parseStatements(q.policy)
	return nil
}

// oneOrMany writes a single value as itself, as the service does.
func oneOrMany(v []string) any {
	if len(v) == 1 {
		return v[0]
	}
	return v
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}
