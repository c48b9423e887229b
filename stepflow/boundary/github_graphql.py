"""The GraphQL documents that are sent to GitHub."""

from __future__ import annotations

WHO_AM_I = "query { viewer { databaseId login } }"
UPDATE_REFS = "mutation ($input: UpdateRefsInput!) { updateRefs(input: $input) { clientMutationId } }"
CREATE_COMMIT = (
    "mutation ($input: CreateCommitOnBranchInput!) { createCommitOnBranch(input: $input) { commit { oid } } }"
)
THREAD = """
fragment Thread on PullRequestReviewThread {
  id isResolved path line originalLine
  opening: comments(first: 1) { nodes { diffHunk } }
  comments(last: 100) {
    totalCount
    nodes { body url author { __typename login ... on User { databaseId } ... on Bot { databaseId } } }
  }
}
"""
REVIEW_THREADS = f"""
query ($owner: String!, $name: String!, $number: Int!, $after: String) {{
  repository(owner: $owner, name: $name) {{
    pullRequest(number: $number) {{
      reviewThreads(first: 50, after: $after) {{ pageInfo {{ hasNextPage endCursor }} nodes {{ ...Thread }} }}
    }}
  }}
}}
{THREAD}"""
REVIEW_THREAD = f"query ($id: ID!) {{ node(id: $id) {{ id ...Thread }} }} {THREAD}"
REPLY = (
    "mutation ($input: AddPullRequestReviewThreadReplyInput!) "
    "{ addPullRequestReviewThreadReply(input: $input) { comment { url } } }"
)
RESOLVE = "mutation ($input: ResolveReviewThreadInput!) { resolveReviewThread(input: $input) { clientMutationId } }"
#: Every document that is sent.
DOCUMENTS = (WHO_AM_I, UPDATE_REFS, CREATE_COMMIT, REVIEW_THREADS, REVIEW_THREAD, REPLY, RESOLVE)
